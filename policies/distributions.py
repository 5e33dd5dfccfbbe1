"""Distributions over action spaces: sampled in NumPy while acting, differentiated in torch while learning.

A distribution reads ``outputs`` numbers per sample from the network and ``free`` learned numbers that do not depend on
the observation. What it samples is a *choice*: ``choices`` float32 numbers, which ``actions`` turns into members of the
space. Learning stores and looks at choices alone, since an action may have lost something (clipped to its bounds).
"""

import math
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from torch.nn import functional

from arena.envs.interface import EntitySpaces
from arena.errors import ConfigError

NEVER = -1.0e9  # the logit of what a mask forbids; finite, so that its probability is 0 and its gradient is too
NOWHERE = 2 * NEVER  # the logit of what does not exist; even less, should a mask forbid all that does
LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class Distribution(Protocol):
    """What a policy needs of a distribution over N samples.

    Attributes:
      outputs: numbers per sample that the network provides.
      free: initial values of the learned numbers that do not depend on the observation.
      choices: numbers per choice.
      flags: size of the action mask that it can honour, 0 for none.
    """

    outputs: int
    free: list[float]
    choices: int
    flags: int

    def sample(
        self,
        outputs: np.ndarray,
        free: np.ndarray,
        mask: np.ndarray | None,
        random: np.random.Generator,
        deterministic: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return choices ``[N, choices]`` and their log probabilities ``[N]``; the mode if ``deterministic``."""

    def actions(self, choice: np.ndarray) -> Any:
        """Return choices ``[N, choices]`` as members of the space: an array ``[N, ...]`` or a nest of them."""

    def evaluate(
        self, outputs: torch.Tensor, free: torch.Tensor, choice: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log probabilities ``[N]`` and entropies ``[N]``, differentiable in ``outputs`` and ``free``."""


class Categorical:
    """One or several independent choices out of n: Discrete and MultiDiscrete."""

    def __init__(self, space: gym_spaces.Discrete | gym_spaces.MultiDiscrete) -> None:
        """Read the sizes from the space."""
        sizes = np.atleast_1d(space.n if isinstance(space, gym_spaces.Discrete) else space.nvec.ravel()).astype(int)
        self._shape = tuple(space.shape or ())
        self._start = np.ravel(space.start)
        self._dtype = space.dtype
        self.choices = len(sizes)
        self.outputs = self.flags = int(sizes.sum())
        self.free: list[float] = []
        self._width = int(sizes.max())
        # Columns of different sizes are filled up to the widest one with logits that are never chosen.
        self._present = None if (sizes == self._width).all() else np.arange(self._width) < sizes[:, None]

    def sample(
        self,
        outputs: np.ndarray,
        free: np.ndarray,
        mask: np.ndarray | None,
        random: np.random.Generator,
        deterministic: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """See ``Distribution``; sampled by inverting the cumulative distribution."""
        logits = outputs if mask is None else np.where(mask != 0, outputs, np.float32(NEVER))
        if self._present is not None:
            padded = np.full((len(logits), self.choices, self._width), NOWHERE, np.float32)
            padded[:, self._present] = logits
            logits = padded
        # One row per choice. This runs once per step, so it is written for few and cheap calls.
        logits = logits.reshape(-1, self._width)
        logits = logits - np.maximum.reduce(logits, 1, keepdims=True)
        cumulative = np.exp(logits).cumsum(1)
        total = cumulative[:, -1]
        if deterministic:
            choice = logits.argmax(1)
        else:
            # In (0, 1], so that a choice of probability 0 is never reached.
            level = 1 - random.random(len(total), np.float32)
            choice = (cumulative >= (level * total)[:, None]).argmax(1)
        log_prob = logits[np.arange(len(choice)), choice] - np.log(total)
        if self.choices > 1:
            log_prob = log_prob.reshape(-1, self.choices).sum(1)
        return choice.astype(np.float32).reshape(-1, self.choices), log_prob

    def actions(self, choice: np.ndarray) -> np.ndarray:
        """Return ``[N, ...]`` in the space's own numbering."""
        return (choice.astype(self._dtype) + self._start).astype(self._dtype).reshape(-1, *self._shape)

    def probabilities(self, outputs: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Return the probability of each of the n values of a single choice, ``[N, n]``; exactly 0 where masked."""
        logits = outputs.astype(np.float64) if mask is None else np.where(mask != 0, outputs, -np.inf)
        weights = np.exp(logits - logits.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)

    def evaluate(
        self, outputs: torch.Tensor, free: torch.Tensor, choice: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``Distribution``."""
        logits = outputs if mask is None else outputs.masked_fill(mask == 0, NEVER)
        if self._present is None:
            logits = logits.view(-1, self.choices, self._width)
        else:
            padded = logits.new_full((len(logits), self.choices, self._width), NOWHERE)
            padded[:, torch.from_numpy(self._present).to(logits.device)] = logits
            logits = padded
        log_probs = functional.log_softmax(logits, -1)
        log_prob = log_probs.gather(-1, choice.long().unsqueeze(-1)).sum((-2, -1))
        return log_prob, -(log_probs.exp() * log_probs).sum((-2, -1))


class Bernoulli:
    """Independent yes-or-no choices: MultiBinary."""

    def __init__(self, space: gym_spaces.MultiBinary) -> None:
        """Read the shape from the space."""
        self._shape = space.shape
        self._dtype = space.dtype
        self.outputs = self.choices = math.prod(space.shape)
        self.free: list[float] = []
        self.flags = 0

    def sample(
        self,
        outputs: np.ndarray,
        free: np.ndarray,
        mask: np.ndarray | None,
        random: np.random.Generator,
        deterministic: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """See ``Distribution``; the log odds of a uniform number are the threshold that the logits must pass."""
        if deterministic:
            choice = (outputs > 0).astype(np.float32)
        else:
            level = random.random(outputs.shape)
            choice = (outputs > np.log(level) - np.log1p(-level)).astype(np.float32)
        return choice, (choice * outputs - np.logaddexp(0, outputs)).sum(-1)

    def actions(self, choice: np.ndarray) -> np.ndarray:
        """Return ``[N, ...]`` of 0 and 1."""
        return choice.astype(self._dtype).reshape(-1, *self._shape)

    def evaluate(
        self, outputs: torch.Tensor, free: torch.Tensor, choice: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``Distribution``."""
        normaliser = functional.softplus(outputs)
        log_prob = (choice * outputs - normaliser).sum(-1)
        return log_prob, (normaliser - torch.sigmoid(outputs) * outputs).sum(-1)


class Gaussian:
    """Independent normal numbers whose deviation does not depend on the observation: Box.

    The network speaks in units in which a bounded dimension reaches from -1 to 1; ``actions`` scales, then clips.
    """

    def __init__(self, space: gym_spaces.Box, log_std: float) -> None:
        """Read shape and bounds from the space."""
        self._space = space
        self.outputs = self.choices = math.prod(space.shape)
        self.free = [log_std] * self.choices
        self.flags = 0
        bounded = space.bounded_below & space.bounded_above
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._middle = np.where(bounded, np.where(bounded, low, 0) / 2 + np.where(bounded, high, 0) / 2, 0)
        self._reach = np.where(bounded, np.where(bounded, high, 0) / 2 - np.where(bounded, low, 0) / 2, 1)

    def sample(
        self,
        outputs: np.ndarray,
        free: np.ndarray,
        mask: np.ndarray | None,
        random: np.random.Generator,
        deterministic: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """See ``Distribution``."""
        if deterministic:
            noise = np.zeros_like(outputs)
        else:
            noise = random.standard_normal(outputs.shape, np.float32)
        log_prob = -(0.5 * noise * noise + free + LOG_SQRT_2PI).sum(-1)
        return outputs + noise * np.exp(free), log_prob

    def actions(self, choice: np.ndarray) -> np.ndarray:
        """Return ``[N, ...]`` inside the bounds."""
        found = self._middle + self._reach * choice.reshape(-1, *self._space.shape)
        return np.clip(found, self._space.low, self._space.high).astype(self._space.dtype)

    def evaluate(
        self, outputs: torch.Tensor, free: torch.Tensor, choice: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``Distribution``."""
        noise = (choice - outputs) * torch.exp(-free)
        log_prob = -(0.5 * noise.square() + free + LOG_SQRT_2PI).sum(-1)
        return log_prob, (free + LOG_SQRT_2PI + 0.5).sum().expand_as(log_prob)


class Joint:
    """Independent distributions side by side: Dict and Tuple, in the order of the space."""

    def __init__(self, parts: list[Distribution], keys: list[str] | None) -> None:
        """Take one distribution for each item; ``keys`` names them for a Dict."""
        self._parts = parts
        self._keys = keys
        self.outputs = sum(part.outputs for part in parts)
        self.choices = sum(part.choices for part in parts)
        self.flags = sum(part.flags for part in parts)
        self.free = [value for part in parts for value in part.free]
        self._slices = []
        start = [0, 0, 0, 0]
        for part in parts:
            end = [a + b for a, b in zip(start, (part.outputs, len(part.free), part.choices, part.flags), strict=True)]
            self._slices.append(tuple(slice(a, b) for a, b in zip(start, end, strict=True)))
            start = end

    def sample(
        self,
        outputs: np.ndarray,
        free: np.ndarray,
        mask: np.ndarray | None,
        random: np.random.Generator,
        deterministic: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """See ``Distribution``; log probabilities of independent parts add up."""
        choice, log_prob = zip(
            *(
                part.sample(outputs[:, o], free[f], None if mask is None else mask[:, m], random, deterministic)
                for part, (o, f, _, m) in zip(self._parts, self._slices, strict=True)
            ),
            strict=True,
        )
        return np.concatenate(choice, -1), np.sum(log_prob, 0)

    def actions(self, choice: np.ndarray) -> dict[str, Any] | tuple[Any, ...]:
        """Return a dict or a tuple of what the parts make of their share."""
        found = [part.actions(choice[:, c]) for part, (_, _, c, _) in zip(self._parts, self._slices, strict=True)]
        return tuple(found) if self._keys is None else dict(zip(self._keys, found, strict=True))

    def evaluate(
        self, outputs: torch.Tensor, free: torch.Tensor, choice: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``Distribution``; entropies of independent parts add up as well."""
        log_probs, entropies = zip(
            *(
                part.evaluate(outputs[:, o], free[f], choice[:, c], None if mask is None else mask[:, m])
                for part, (o, f, c, m) in zip(self._parts, self._slices, strict=True)
            ),
            strict=True,
        )
        return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)


def distribution(spaces: EntitySpaces, log_std: float = 0.0) -> Distribution:
    """Return the distribution over an entity's action space.

    Args:
      spaces: of the entity; its mask must fit its actions.
      log_std: initial log standard deviation of continuous actions.

    Raises:
      ConfigError: there is none for this space, or it cannot honour the mask.
    """
    found = _distribution(spaces.action, log_std, spaces.name)
    if spaces.mask_size not in (0, found.flags):
        raise ConfigError(
            f"entity {spaces.name!r}: expected an action mask of {found.flags} flags for {spaces.action}, found "
            f"{spaces.mask_size}; a mask has one flag for each discrete action"
        )
    return found


def _distribution(space: gym_spaces.Space, log_std: float, entity: str) -> Distribution:
    if isinstance(space, (gym_spaces.Discrete, gym_spaces.MultiDiscrete)):
        return Categorical(space)
    if isinstance(space, gym_spaces.MultiBinary):
        return Bernoulli(space)
    if isinstance(space, gym_spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return Gaussian(space, log_std)
    if isinstance(space, gym_spaces.Tuple) and space.spaces:
        return Joint([_distribution(sub, log_std, entity) for sub in space.spaces], None)
    if isinstance(space, gym_spaces.Dict) and space.spaces:
        return Joint([_distribution(sub, log_std, entity) for sub in space.spaces.values()], list(space.spaces))
    raise ConfigError(
        f"entity {entity!r}: this policy cannot choose from {space}; expected Discrete, MultiDiscrete, MultiBinary, "
        f"a Box of floats, or Dict and Tuple of them; random plays any action space"
    )
