"""Policies as torch modules of standard layers: flat tensors in, the most likely actions out, for other runtimes."""

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from torch import nn

from arena.common.trees import NamedLeaf, leaf_dtype, leaf_shape, named_leaves, nest
from arena.envs.interface import EntitySpaces
from arena.policies.distributions.discrete import NEVER
from arena.policies.encoders.leaves import Measured
from arena.policies.layers import Tanh
from arena.policies.networks import PolicyAndValue

OUTPUTS, MASK, STATE, START, NEXT_STATE = "outputs", "action_mask", "state", "start", "next_state"


class Tensor(NamedTuple):
    """An input or an output, without its leading axis of N rows.

    Attributes:
      name: ``observation`` or ``observation.key``, ``action_mask``, ``state``, ``start``; ``outputs``, ``action`` or
        ``action.key``, ``next_state``.
      shape: shape of a row.
      dtype: dtype of its elements.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype


class Inference(NamedTuple):
    """A policy as a module for other runtimes.

    Attributes:
      module: maps the inputs ``[N, ...]``, positional arguments, to a tuple of the outputs ``[N, ...]``. It shares the
        parameters of the policy; those of its ``network`` have the names of ``Policy.weights``.
      inputs: the leaves of an observation; ``action_mask`` (int8, nonzero is allowed) with masks; for a recurrent
        policy ``state`` and ``start`` (bool, whether the observation is the first of an episode).
      outputs: the network's outputs after the mask; the leaves of the most likely action, as a member of its space; for
        a recurrent policy ``next_state``.
    """

    module: nn.Module
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Shape of a row's recurrent state; empty for a feed-forward policy."""
        return next((tensor.shape for tensor in self.inputs if tensor.name == STATE), ())

    @property
    def normalization(self) -> dict[str, dict[str, list[float]]]:
        """Mean and standard deviation of the inputs that the module normalises, by their names."""
        encoder = next((module for module in self.module.modules() if isinstance(module, Measured)), None)
        normalizations = [] if encoder is None else encoder.normalizations  # none in the networks of a user
        leaves = zip(self.inputs, normalizations, strict=False)  # the inputs begin with the leaves
        all_moments = {tensor.name: leaf.moments() for tensor, leaf in leaves if leaf is not None}
        return {
            name: {"mean": moments.mean.tolist(), "deviation": moments.deviation.tolist()}
            for name, moments in all_moments.items()
        }


def inference_of(spaces: EntitySpaces, network: nn.Module, *, squashed: bool = False) -> Inference:
    """Return a network as a module for other runtimes.

    Args:
      spaces: spaces of the entity.
      network: maps observations to distribution parameters or values; a ``PolicyAndValue`` by its policy.
      squashed: whether continuous actions are the hyperbolic tangent of the network's first outputs.
    """
    rows, width = (network.policy_rows, network.state_shape[1]) if isinstance(network, PolicyAndValue) else (0, 0)
    inputs = [_tensor(leaf) for leaf in named_leaves(spaces.observation, "observation")]
    if spaces.mask_size:
        inputs.append(Tensor(MASK, (spaces.mask_size,), np.dtype(np.int8)))
    if rows:
        inputs += [Tensor(STATE, (rows, width), np.dtype(np.float32)), Tensor(START, (), np.dtype(bool))]
    module = _Module(spaces, plain(network), _choice(spaces.action, squashed), memory=bool(rows)).eval()
    with torch.inference_mode():
        outputs_of_one = module(*(torch.from_numpy(np.ones((1, *tensor.shape), tensor.dtype)) for tensor in inputs))[0]
    outputs = [Tensor(OUTPUTS, tuple(outputs_of_one.shape[1:]), np.dtype(np.float32))]
    outputs += [_tensor(leaf) for leaf in named_leaves(spaces.action, "action")]
    if rows:
        outputs.append(Tensor(NEXT_STATE, (rows, width), np.dtype(np.float32)))
    return Inference(module, tuple(inputs), tuple(outputs))


def _tensor(leaf: NamedLeaf) -> Tensor:
    return Tensor(leaf.name, leaf.shape, leaf.dtype)


def plain(network: nn.Module) -> nn.Module:
    """Return a copy that shares all parameters and consists of torch's standard layers, which exporters support."""
    shared = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    twin = copy.deepcopy(network, shared)
    for module in list(twin.modules()):
        for name, child in module.named_children():
            if isinstance(child, Tanh):
                setattr(module, name, nn.Tanh())
    return twin


class _Module(nn.Module):
    """An entity's policy; see ``Inference``."""

    flags: torch.Tensor
    network: Any

    def __init__(self, spaces: EntitySpaces, network: nn.Module, choice: "_Choice", *, memory: bool) -> None:
        super().__init__()
        self._space, self._masked, self._memory = spaces.observation, spaces.mask_size > 0, memory
        self._leaves = len(named_leaves(spaces.observation, ""))
        self.network, self.choice = network, choice
        # index of each output's flag in the mask, to which a 1 is appended
        flags = torch.tensor(choice.flags, dtype=torch.int64)
        self.register_buffer("flags", torch.where(flags < 0, spaces.mask_size, flags), persistent=False)
        self._in_order = choice.flags == list(range(spaces.mask_size))

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs for the inputs."""
        observations = nest(self._space, tensors[: self._leaves])
        rest = list(tensors[self._leaves :])
        mask = rest.pop(0) if self._masked else None
        after = None
        if self._memory:
            state, start = rest
            outputs, after = self.network.policy_step(observations, start, state)
        elif isinstance(self.network, PolicyAndValue):
            outputs, _ = self.network.policy_step(observations)
        else:
            outputs = self.network(observations)
        if mask is not None:
            if not self._in_order:
                mask = torch.cat((mask, torch.ones_like(mask[:, :1])), 1)[:, self.flags]
            outputs = torch.where(mask != 0, outputs, torch.full_like(outputs, NEVER))
        results = outputs, *self.choice(outputs)
        return results if after is None else (*results, after)


class _Choice(nn.Module):
    """Selection of the most likely action, leaf by leaf, from a network's outputs.

    Attributes:
      reads: number of outputs that it reads.
      flags: for each of them, the index of its flag in an action mask, or -1 for none.
    """

    reads: int
    flags: list[int]


class _Categorical(_Choice):
    """The most likely value of each choice of a Discrete or MultiDiscrete space."""

    start: torch.Tensor

    def __init__(self, space: gym_spaces.Discrete | gym_spaces.MultiDiscrete) -> None:
        super().__init__()
        sizes = np.atleast_1d(space.n if isinstance(space, gym_spaces.Discrete) else space.nvec.ravel())
        self.reads = int(sizes.sum())
        self.flags = list(range(self.reads))
        self._sizes = [int(size) for size in sizes]
        self._shape, self._dtype = leaf_shape(space), _torch_dtype(leaf_dtype(space))
        self._shifted = bool(np.any(space.start))
        self.register_buffer("start", torch.from_numpy(np.ravel(space.start).astype(np.int64)), persistent=False)

    def forward(self, outputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        choices = torch.stack([part.argmax(1) for part in outputs.split(self._sizes, 1)], 1)
        if self._shifted:
            choices = choices + self.start
        return (choices.to(self._dtype).reshape(outputs.shape[0], *self._shape),)


class _Bernoulli(_Choice):
    """The more likely value of each flag of a MultiBinary space."""

    def __init__(self, space: gym_spaces.MultiBinary) -> None:
        super().__init__()
        self.reads = math.prod(space.shape)
        self.flags = [-1] * self.reads
        self._shape, self._dtype = leaf_shape(space), _torch_dtype(leaf_dtype(space))

    def forward(self, outputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ((outputs > 0).to(self._dtype).reshape(outputs.shape[0], *self._shape),)


class _Box(_Choice):
    """The mean of a Box: scaled to its bounds, then clipped."""

    middle: torch.Tensor
    reach: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, space: gym_spaces.Box, *, squashed: bool) -> None:
        super().__init__()
        self.reads = math.prod(space.shape)
        self.flags = [-1] * self.reads
        self._shape, self._squashed = leaf_shape(space), squashed
        bounded = space.bounded_below & space.bounded_above
        low, high = (np.where(bounded, bound, 0).astype(np.float64) / 2 for bound in (space.low, space.high))
        numbers = {"middle": low + high, "reach": np.where(bounded, high - low, 1)}
        for name, values in (*numbers.items(), ("low", space.low), ("high", space.high)):
            self.register_buffer(name, torch.from_numpy(np.ravel(values).astype(space.dtype)), persistent=False)

    def forward(self, outputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        numbers = outputs[:, : self.reads]  # an actor may also output standard deviations
        numbers = (torch.tanh(numbers) if self._squashed else numbers).to(self.low.dtype)
        results = torch.minimum(torch.maximum(self.middle + self.reach * numbers, self.low), self.high)
        return (results.reshape(outputs.shape[0], *self._shape),)


class _Joint(_Choice):
    """The parts of a Dict or Tuple, side by side."""

    def __init__(self, parts: Sequence[_Choice]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self._reads = [part.reads for part in parts]
        self.reads, self.flags = sum(self._reads), []
        for part in parts:
            first = sum(flag >= 0 for flag in self.flags)
            self.flags += [flag + first if flag >= 0 else -1 for flag in part.flags]

    def forward(self, outputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shares = outputs.split(self._reads, 1)
        return tuple(leaf for part, share in zip(self.parts, shares, strict=True) for leaf in part(share))


def _choice(space: gym_spaces.Space, squashed: bool) -> _Choice:
    """Return the selection of the most likely action for a space."""
    if isinstance(space, (gym_spaces.Dict, gym_spaces.Tuple)):
        parts = space.spaces.values() if isinstance(space, gym_spaces.Dict) else space.spaces
        return _Joint([_choice(part, squashed) for part in parts])
    if isinstance(space, (gym_spaces.Discrete, gym_spaces.MultiDiscrete)):
        return _Categorical(space)
    if isinstance(space, gym_spaces.MultiBinary):
        return _Bernoulli(space)
    assert isinstance(space, gym_spaces.Box)
    return _Box(space, squashed=squashed)


def _torch_dtype(dtype: np.dtype) -> torch.dtype:
    return torch.from_numpy(np.zeros(0, dtype)).dtype
