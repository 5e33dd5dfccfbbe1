"""Base class of the algorithms that learn from a replay buffer: warm-up, gradient steps, targets, and state."""

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from arena.common.seeding import derive_seed, generator_state, new_generator, set_generator_state
from arena.common.trees import map_tree, tree_leaves
from arena.envs.interface import EntitySpaces
from arena.experience.feed import ReplayFeed, RowMaker
from arena.experience.rollout import Rollout
from arena.experience.row_layout import OBSERVATION
from arena.experience.rows import Transitions
from arena.policies.compiled.adam import FlatAdam, flattened, l2_norm
from arena.policies.compiled.kernels import polyak_update
from arena.policies.copies import copy_tensors
from arena.policies.encoders.composite import Encoder
from arena.policies.inference import Inference, inference_of
from arena.policies.interface import Decision, Reducer
from arena.policies.not_finite import not_finite_while_acting
from arena.policies.off_policy.actions import Actions
from arena.policies.settings.base import settings_of_job
from arena.tensors.gradients import FlatGradient

ACTING = ("pace", "progress")  # state of acting besides the network
NUMBERS = ("updates", "gradient_steps", "progress")


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's initial weights within a block, without changing its global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class OffPolicy(ABC):
    """An algorithm that learns from a replay buffer.

    Each gradient step takes rows from the replays of all workers, computes all gradients with the weights before the
    step, averages them over the group in one reduction, and updates all networks together. Decisions of the whole group
    depend on reduced values only.

    Class attributes:
      LOSSES: names of the logged losses of each gradient step, means over its rows.
      FORWARD: names of the settings of acting that a league's job may set.

    Attributes:
      name: name of the algorithm in a configuration.
      actions: its action space.
      feed: the replay buffer and its update ratio.
      gradient_steps: number of gradient steps taken.
    """

    LOSSES: ClassVar[tuple[str, ...]]
    FORWARD: ClassVar[tuple[str, ...]] = ()
    _fast: Any  # computes small networks by compiled loops; None where torch does

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
        """Create the optimizers, the targets and the replay buffer.

        Args:
          spaces: see ``Policy``, like the last three.
          settings: a ``ReplaySettings`` with ``learning_rate`` and ``horizon``.
          actions: the action space.
          learned: the learned networks, each with an optimizer of its own; ``network`` acts.
          targets: names of those with a target network, and the targets.
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
        self.feed = ReplayFeed(self._row_maker(lanes), settings, random=draws, priority=priority)
        self.learned, self.targets = dict(learned), dict(targets)
        self.optimizers = {name: FlatAdam(module, settings.adam_epsilon) for name, module in learned.items()}
        self._followers = {name: flattened(module) for name, module in targets.items()}
        self.gradient = FlatGradient(nn.ModuleList(learned.values()).parameters(), extras=len(self.LOSSES))
        ends = np.cumsum([len(optimizer.parameters) for optimizer in self.optimizers.values()]).tolist()
        self._parts = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        self._make_views()

    def _row_maker(self, lanes: int) -> RowMaker:
        """Return the conversion of rollouts with ``lanes`` lanes to rows of the replay buffer."""
        settings = self.settings
        return Transitions(self._spaces, self.extras, lanes=lanes, gamma=settings.gamma, n_step=settings.n_step)

    # Acting

    def _outputs(self, observations: Any, *where: Any) -> np.ndarray:
        """Return the outputs of the acting network for observations ``[N, ...]``, ``[N, outputs]``.

        Args:
          observations: arrays ``[N, ...]``, nested like the space.
          where: further arguments of ``_forward``.

        Raises:
          FloatingPointError: an output is not finite.
        """
        if self._fast is not None:
            outputs = self._fast.act(observations)
        else:
            with torch.inference_mode():
                tensors = map_tree(lambda array: torch.from_numpy(array).to(self.device), observations)
                outputs = self._forward(tensors, *where).numpy(force=True)
        if not math.isfinite(float(outputs.sum())):
            raise FloatingPointError(not_finite_while_acting(self.updates, observations, outputs))
        return outputs

    def _forward(self, observations: Any, *where: Any) -> torch.Tensor:
        """Return the outputs of the acting network for tensors ``[N, ...]``, by torch."""
        return self.learned["network"](observations)

    def configure(self, forward: dict[str, Any], data: dict[str, Any]) -> None:
        """See ``Policy``."""
        self.settings = settings_of_job(self.name, self._own_settings, forward, data, self.FORWARD)

    # Learning

    def learn(self, rollout: Rollout, group: Reducer) -> dict[str, float]:
        """See ``Policy``."""
        settings = self.settings
        if self.gradient.join(group):
            self._make_views()
        rate = settings.learning_rate
        if settings.learning_rate_schedule == "linear":
            rate *= 1 - self.progress
        totals, steps, norm, bound = np.zeros(len(self.LOSSES)), 0, 0.0, settings.max_grad_norm
        collected = self.feed.pace.collected
        self._measure(self.feed.store(rollout, group), group)
        for rows, weights in self.feed.minibatches(group):
            if len(rows):
                self._differentiate(rows, weights)
            else:  # this worker has no rows, but takes part in the average
                self.gradient.zero()
            self.gradient.average(group, len(rows))
            values, moves = self._moves[self._moving() - 1]
            losses = self._losses if self._on_cpu else self.gradient.extras.numpy(force=True)
            self.gradient_steps += 1
            means, scale = losses.tolist(), 1.0
            if bound is not None:
                norm = l2_norm(values)
                scale = bound / norm if norm > bound else 1.0
            if not math.isfinite(norm + sum(means)):  # raised by all workers together: the values were reduced
                raise FloatingPointError(self._not_finite())
            for optimizer, gradient in moves:
                optimizer.step(gradient, rate, scale)
            if settings.target_average is not None:
                self._follow(settings.target_average)
            totals += means
            steps += 1
        if steps:
            norm = l2_norm(values)
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

    def _make_views(self) -> None:
        """Create views of the gradient after it was created or moved: creating them takes as long as using them."""
        values = self.gradient.values
        steps = [
            (optimizer, values[part]) for optimizer, part in zip(self.optimizers.values(), self._parts, strict=True)
        ]
        # for each number of updated networks: their gradients together, and each optimizer with its own gradient
        self._moves = [(values[: part.stop], steps[: number + 1]) for number, part in enumerate(self._parts)]
        if values.is_cpu:
            self._losses = self.gradient.extras.numpy()
            self._gradients = {name: values[part].numpy() for name, part in zip(self.learned, self._parts, strict=True)}
        self._prepare()

    @abstractmethod
    def _measure(self, rows: np.ndarray, group: Reducer) -> None:
        """Include new rows ``[N]`` in running normalisations; all workers of the group make this call."""

    @abstractmethod
    def _prepare(self) -> None:
        """Choose the implementation that computes the gradients."""

    @abstractmethod
    def _differentiate(self, rows: np.ndarray, weights: np.ndarray | None) -> None:
        """Write the gradient of the losses over rows ``[B]``, followed by ``LOSSES``.

        Rows with importance ``weights`` ``[B]`` were sampled by priorities, and ``feed.set_errors`` must get new ones.
        """

    def _moving(self) -> int:
        """Return how many of the learned networks this gradient step updates: the first ones."""
        return len(self.learned)

    def _follow(self, share: float) -> None:
        """Update every target network by Polyak averaging."""
        for name, follower in self._followers.items():
            if share == 1:
                follower.copy_(self.optimizers[name].parameters)
            elif self._on_cpu:
                polyak_update(follower.numpy(), self.optimizers[name].parameters.numpy(), share)
            else:
                follower.lerp_(self.optimizers[name].parameters, share)

    def _not_finite(self) -> str:
        losses = zip(self.LOSSES, self.gradient.extras.tolist(), strict=True)
        culprits = [name for name, loss in losses if not math.isfinite(loss)]
        for name, module in self.learned.items():
            for below, parameter in module.named_parameters():
                if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
                    culprits.append(f"the gradient of {name}.{below}")
        culprit = culprits[0] if culprits else "the length of the gradient"
        return f"update {self.updates + 1}: {culprit} is not finite"

    def set_progress(self, done: float) -> None:
        """See ``Policy``."""
        self.progress = min(max(done, 0.0), 1.0)

    # State

    def encoders(self) -> list[Encoder]:
        """See ``Policy``: those of all networks and targets."""
        networks = nn.ModuleList((*self.learned.values(), *self.targets.values()))
        return [module for module in networks.modules() if isinstance(module, Encoder)]

    def weights(self) -> dict[str, torch.Tensor]:
        """See ``Policy``: the acting network."""
        return {name: tensor.detach().cpu().clone() for name, tensor in self.learned["network"].state_dict().items()}

    def inference(self) -> Inference:
        """See ``Policy``: the acting network; a Box's actions are squashed."""
        return inference_of(self._spaces, self.learned["network"], squashed=True)

    def load_weights(self, weights: dict[str, Any]) -> None:
        """See ``Policy``; a target of this network becomes a copy of it.

        Raises:
          ConfigError: names or shapes are not those of this network.
        """
        copy_tensors(self.learned["network"].state_dict(), weights)
        if "network" in self._followers:
            self._followers["network"].copy_(self.optimizers["network"].parameters)

    def acting_state(self) -> dict[str, torch.Tensor]:
        """See ``Policy``: the acting network, and the progress of exploration."""
        progress = torch.tensor(self.progress, dtype=torch.float64)
        return {**self.weights(), "pace": torch.from_numpy(self.feed.pace.state()), "progress": progress}

    def load_acting_state(self, state: dict[str, Any]) -> None:
        """See ``Policy``."""
        self.feed.pace.load_state(state["pace"].numpy())
        self.progress = float(state["progress"])
        copy_tensors(self.learned["network"].state_dict(), {n: t for n, t in state.items() if n not in ACTING})

    def _tensors(self) -> dict[str, torch.Tensor]:
        """Return the shared tensors themselves; numbers are apart."""
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
            **{f"adam.{name}.steps": torch.tensor(optimizer.steps) for name, optimizer in self.optimizers.items()},
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


class EntityLearner(OffPolicy):
    """An algorithm with one acting network, for entities with equal spaces that learn apart."""

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
        """See ``Policy``; while the replay buffer warms up, actions are uniform among the allowed ones."""
        if learning and self.feed.pace.warming_up:
            choice = self.actions.any(len(tree_leaves(observations)[0]), action_mask, self.random)
        else:
            outputs = self._outputs(observations)
            choice = self._choose(outputs, action_mask, lanes, learning=learning, deterministic=deterministic)
        return Decision(self.actions.members(choice), self._extras(choice, action_mask) if learning else {})

    def _measure(self, rows: np.ndarray, group: Reducer) -> None:
        """See ``OffPolicy``: all networks share the normalisations of the one that acts."""
        encoder: Any = self.learned["network"].encoder
        if any(encoder.normalizations):
            columns = [rows[f"{OBSERVATION}{number}"] for number in range(len(encoder.normalizations))]
            encoder.measure(columns, slice(None), group)

    def _extras(self, choice: np.ndarray, mask: np.ndarray | None) -> dict[str, np.ndarray]:
        """Return what acting stores for learning: the choices, and what else the algorithm needs."""
        return {"choice": choice}

    @abstractmethod
    def _choose(
        self, outputs: np.ndarray, mask: np.ndarray | None, lanes: slice | None, *, learning: bool, deterministic: bool
    ) -> np.ndarray:
        """Return the choices ``[N, ...]`` for the network's outputs, with exploration while learning."""
