"""What the algorithms that learn from a replay have in common: warm-up, gradient steps, targets, and state."""

import contextlib
import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import nn

from arena.common.seeding import derive_seed
from arena.common.trees import map_tree, tree_leaves
from arena.envs.interface import EntitySpaces
from arena.experience.feed import ReplayFeed
from arena.experience.rollout import Rollout
from arena.policies.compiled.adam import FlatAdam, flattened, length
from arena.policies.compiled.kernels import mix
from arena.policies.generator import generator_state, new_generator, set_generator_state
from arena.policies.inference import Inference, inference_of
from arena.policies.interface import Decision, Reducer
from arena.policies.networks import copy_tensors
from arena.policies.off_policy.actions import Actions
from arena.policies.settings import settings_of_job
from arena.tensors.gradients import FlatGradient

ACTING = ("pace", "progress")  # what acting needs besides the network
NUMBERS = ("updates", "gradient_steps", "progress")


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Have torch draw initial weights from a seed, and leave its own generator alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class OffPolicy(ABC):
    """An algorithm that learns from a replay.

    Each gradient step takes rows from the replays of all workers, works out all gradients with the weights from before
    it, averages them over the group in one reduction, and moves all weights together. What is decided for the whole
    group is decided on what was reduced.

    Class attributes:
      LOSSES: names of what is logged of each gradient step, means over its rows.
      FORWARD: names of what a league's job may say of acting.

    Attributes:
      name: of the algorithm, as in a configuration.
      actions: the space that it chooses from.
      feed: the replay and its pace.
      gradient_steps: how many were taken.
    """

    LOSSES: ClassVar[tuple[str, ...]]
    FORWARD: ClassVar[tuple[str, ...]] = ()
    _fast: Any  # what computes small networks without torch; None where torch does

    def __init__(
        self,
        spaces: EntitySpaces,
        settings: Any,
        *,
        actions: Actions,
        learned: Mapping[str, nn.Module],
        targets: Mapping[str, nn.Module],
        extras: dict[str, tuple[tuple[int, ...], Any]],
        lanes: int,
        seed: int,
        device: str,
        priority: float | None = None,
    ) -> None:
        """Take the networks.

        Args:
          spaces: see ``Policy``, like the last three.
          settings: a ``ReplaySettings`` with ``learning_rate`` and ``horizon``.
          actions: the space to choose from.
          learned: what is learned, each with an optimizer of its own; ``network`` is what acts.
          targets: the names of those that have a target, and their copies, which follow them.
          extras: see ``Policy``.
          lanes: see ``Policy``.
          seed: see ``Policy``.
          device: see ``Policy``.
          priority: see ``Replay``.
        """
        self.settings = self._own_settings = settings
        self._spaces = spaces
        self.name = type(self).__name__.lower()
        self.horizon = settings.horizon
        self.extras, self.actions = extras, actions
        self.device = torch.device(device)
        self._on_cpu = self.device.type == "cpu"
        self.updates = self.gradient_steps = 0
        self.progress = 0.0
        self.random, draws = new_generator(seed), new_generator(derive_seed(seed, "replay"))
        self._draws = draws
        self.feed = ReplayFeed(spaces, extras, settings, lanes=lanes, random=draws, priority=priority)
        self.learned, self.targets = dict(learned), dict(targets)
        self.optimizers = {name: FlatAdam(module, settings.adam_epsilon) for name, module in learned.items()}
        self._followers = {name: flattened(module) for name, module in targets.items()}
        self.gradient = FlatGradient(nn.ModuleList(learned.values()).parameters(), extras=len(self.LOSSES))
        ends = np.cumsum([len(optimizer.parameters) for optimizer in self.optimizers.values()]).tolist()
        self._parts = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        self._settle()

    # Acting

    def act(
        self,
        observations: Any,
        *,
        action_mask: np.ndarray | None = None,
        starts: np.ndarray | None = None,
        lanes: slice | None = None,
        deterministic: bool = False,
        learning: bool = False,
    ) -> Decision:
        """See ``Policy``; while the replay warms up, actions are drawn evenly from what is allowed."""
        if learning and self.feed.pace.warming_up:
            choice = self.actions.any(len(tree_leaves(observations)[0]), action_mask, self.random)
        else:
            outputs = self._outputs(observations)
            choice = self._choose(outputs, action_mask, lanes, learning=learning, deterministic=deterministic)
        return Decision(self.actions.members(choice), {"choice": choice} if learning else {})

    @abstractmethod
    def _choose(
        self, outputs: np.ndarray, mask: np.ndarray | None, lanes: slice | None, *, learning: bool, deterministic: bool
    ) -> np.ndarray:
        """Return the choices ``[N, ...]`` that follow from what the network says, with exploration while learning."""

    def _outputs(self, observations: Any) -> np.ndarray:
        """Return what the network that acts says of observations ``[N, ...]``, ``[N, outputs]``.

        Raises:
          FloatingPointError: something of it is not finite.
        """
        if self._fast is not None:
            outputs = self._fast.act(observations)
        else:
            with torch.inference_mode():
                tensors = map_tree(lambda array: torch.from_numpy(array).to(self.device), observations)
                outputs = self.learned["network"](tensors).numpy(force=True)
        if not math.isfinite(float(outputs.sum())):
            raise FloatingPointError(self._not_finite_while_acting(observations, outputs))
        return outputs

    def _not_finite_while_acting(self, observations: Any, outputs: np.ndarray) -> str:
        leaves = [leaf for leaf in tree_leaves(observations) if np.issubdtype(leaf.dtype, np.floating)]
        first = "the networks' outputs" if all(np.isfinite(leaf).all() for leaf in leaves) else "the observations"
        odd = np.flatnonzero(~np.isfinite(outputs.reshape(len(outputs), -1)).all(1)).tolist()
        return f"after update {self.updates}: an action is not finite, first {first} (lanes {odd} of this batch)"

    def configure(self, forward: dict[str, Any], data: dict[str, Any]) -> None:
        """See ``Policy``."""
        self.settings = settings_of_job(self.name, self._own_settings, forward, data, self.FORWARD)

    # Learning

    def learn(self, rollout: Rollout, group: Reducer) -> dict[str, float]:
        """See ``Policy``."""
        settings = self.settings
        if self.gradient.join(group):
            self._settle()
        rate = settings.learning_rate
        if settings.learning_rate_schedule == "linear":
            rate *= 1 - self.progress
        totals, steps, norm, bound = np.zeros(len(self.LOSSES)), 0, 0.0, settings.max_grad_norm
        collected = self.feed.pace.collected
        for rows, weights in self.feed.minibatches(rollout, group):
            if len(rows):
                self._differentiate(rows, weights)
            else:  # this worker has nothing to say, but takes part in the average
                self.gradient.zero()
            self.gradient.average(group, len(rows))
            values, moves = self._moves[self._moving() - 1]
            losses = self._losses if self._on_cpu else self.gradient.extras.numpy(force=True)
            self.gradient_steps += 1
            found, scale = losses.tolist(), 1.0
            if bound is not None:
                norm = length(values)
                scale = bound / norm if norm > bound else 1.0
            if not math.isfinite(norm + sum(found)):  # on all workers together: they were reduced
                raise FloatingPointError(self._not_finite())
            for optimizer, slopes in moves:
                optimizer.step(slopes, rate, scale)
            if settings.target_average is not None:
                self._follow(settings.target_average)
            totals += found
            steps += 1
        if steps:
            norm = length(values)
            if not math.isfinite(norm):
                raise FloatingPointError(self._not_finite())
        self.updates += 1
        every = settings.target_every
        if every is not None and self.feed.pace.collected // every > collected // every:
            self._follow(1.0)
        metrics = {"gradient_steps": float(self.gradient_steps), "replay": float(self.feed.pace.held)}
        if steps:
            metrics.update(zip(self.LOSSES, (totals / steps).tolist(), strict=True), grad_norm=norm)
        return metrics

    def _settle(self) -> None:
        """Keep views of the gradient, which has been made or has moved: to make them takes as long as to use them."""
        values = self.gradient.values
        steps = [(one, values[part]) for one, part in zip(self.optimizers.values(), self._parts, strict=True)]
        # For each number of networks that move: the gradients of them all, and each optimizer with its own.
        self._moves = [(values[: part.stop], steps[: number + 1]) for number, part in enumerate(self._parts)]
        if values.is_cpu:
            self._losses = self.gradient.extras.numpy()
            self._slopes = {name: values[part].numpy() for name, part in zip(self.learned, self._parts, strict=True)}
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Choose what computes the gradients."""

    @abstractmethod
    def _differentiate(self, rows: np.ndarray, weights: np.ndarray | None) -> None:
        """Write the gradient of the losses over some rows ``[B]``, and ``LOSSES`` behind it.

        Where rows have ``weights`` ``[B]``, they were drawn by priorities, and ``feed.set_errors`` wants new ones.
        """

    def _moving(self) -> int:
        """Return how many of the learned networks move in this gradient step: the first ones."""
        return len(self.learned)

    def _follow(self, share: float) -> None:
        """Move every target towards what it follows."""
        for name, follower in self._followers.items():
            if share == 1:
                follower.copy_(self.optimizers[name].parameters)
            elif self._on_cpu:
                mix(follower.numpy(), self.optimizers[name].parameters.numpy(), share)
            else:
                follower.lerp_(self.optimizers[name].parameters, share)

    def _not_finite(self) -> str:
        losses = zip(self.LOSSES, self.gradient.extras.tolist(), strict=True)
        culprits = [name for name, loss in losses if not math.isfinite(loss)]
        for name, module in self.learned.items():
            for below, parameter in module.named_parameters():
                if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
                    culprits.append(f"the gradient of {name}.{below}")
        found = culprits[0] if culprits else "the length of the gradient"
        return f"update {self.updates + 1}: {found} is not finite"

    def set_progress(self, done: float) -> None:
        """See ``Policy``."""
        self.progress = min(max(done, 0.0), 1.0)

    # State

    def weights(self) -> dict[str, torch.Tensor]:
        """See ``Policy``: the network that acts."""
        return {name: tensor.detach().cpu().clone() for name, tensor in self.learned["network"].state_dict().items()}

    def inference(self) -> Inference:
        """See ``Policy``: the network that acts; a Box's actions are squashed."""
        return inference_of(self._spaces, self.learned["network"], squashed=True)

    def load_weights(self, weights: dict[str, Any]) -> None:
        """See ``Policy``; a target of this network becomes its copy.

        Raises:
          ConfigError: names or shapes are not those of this network.
        """
        copy_tensors(self.learned["network"].state_dict(), weights)
        if "network" in self._followers:
            self._followers["network"].copy_(self.optimizers["network"].parameters)

    def acting_state(self) -> dict[str, torch.Tensor]:
        """See ``Policy``: the network that acts, and how far exploration is."""
        progress = torch.tensor(self.progress, dtype=torch.float64)
        return {**self.weights(), "pace": torch.from_numpy(self.feed.pace.state()), "progress": progress}

    def load_acting_state(self, state: dict[str, Any]) -> None:
        """See ``Policy``."""
        self.feed.pace.load_state(state["pace"].numpy())
        self.progress = float(state["progress"])
        copy_tensors(self.learned["network"].state_dict(), {n: t for n, t in state.items() if n not in ACTING})

    def _tensors(self) -> dict[str, torch.Tensor]:
        """Return everything that is shared but for numbers: the tensors themselves."""
        tensors = {}
        for prefix, modules in (("", self.learned), ("target.", self.targets)):
            for name, module in modules.items():
                tensors.update({f"{prefix}{name}.{below}": tensor for below, tensor in module.state_dict().items()})
        for name, optimizer in self.optimizers.items():
            tensors[f"adam.{name}.first"], tensors[f"adam.{name}.second"] = optimizer.first, optimizer.second
        return tensors

    def state_dict(self) -> dict[str, torch.Tensor]:
        """See ``Policy``."""
        return {
            **{name: tensor.detach().cpu().clone() for name, tensor in self._tensors().items()},
            **{f"adam.{name}.steps": torch.tensor(one.steps) for name, one in self.optimizers.items()},
            **{name: torch.tensor(getattr(self, name), dtype=torch.float64) for name in NUMBERS},
            "pace": torch.from_numpy(self.feed.pace.state()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See ``Policy``.

        Raises:
          ConfigError: names or shapes are not those of this policy.
        """
        names = [*NUMBERS, *(f"adam.{name}.steps" for name in self.optimizers)]
        numbers = {name: torch.zeros((), dtype=torch.float64) for name in names}
        pace = torch.zeros(3, dtype=torch.int64)
        copy_tensors({**self._tensors(), **numbers, "pace": pace}, state)
        for name, optimizer in self.optimizers.items():
            optimizer.steps = int(numbers[f"adam.{name}.steps"])
        self.updates, self.gradient_steps = int(numbers["updates"]), int(numbers["gradient_steps"])
        self.progress = float(numbers["progress"])
        self.feed.pace.load_state(pace.numpy())

    def worker_state(self) -> dict[str, np.ndarray]:
        """See ``Policy``."""
        generators = {"generator": generator_state(self.random), "draws": generator_state(self._draws)}
        return generators | self.actions.state()

    def load_worker_state(self, state: dict[str, Any]) -> None:
        """See ``Policy``."""
        set_generator_state(self.random, state["generator"])
        set_generator_state(self._draws, state["draws"])
        self.actions.load_state(state)

    def replay_state(self) -> dict[str, np.ndarray]:
        """See ``Policy``."""
        return self.feed.state()

    def load_replay_state(self, state: Mapping[str, np.ndarray]) -> None:
        """See ``Policy``."""
        self.feed.load_state(state)


Network = TypeVar("Network", bound=nn.Module)


def target_of(network: Network) -> Network:
    """Return a copy that is never learned, to follow a network."""
    return copy.deepcopy(network)
