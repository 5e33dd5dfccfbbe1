"""Act-learn policies: what the worker asks of a built-in algorithm; ``act`` needs no environment, ``learn`` no MPI."""

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from arena.envs.interface import EntitySpaces
from arena.learning.reducer import Reducer
from arena.learning.rollout import Decision, Rollout

if TYPE_CHECKING:
    from arena.policies.inference import Inference

__all__ = ["Decision", "Policy", "Reducer"]


class Policy(Protocol):
    """An algorithm that the worker drives.

    A *lane* is one entity in one environment copy; a worker has ``copies * entities`` of them, copies first.

    The collector's order, for each batch of lanes: ``act`` in the slots 0 to T - 1 of a rollout and, where ``extras``
    has ``value``, ``bootstrap`` in slot T; then, when all lanes are there, ``learn``; then ``act`` once more on the
    observations of slot T, which is slot 0 of the next rollout. ``act`` is called on all lanes of a batch in every
    slot, also on those that do not act in it.

    Class attributes:
      Settings: the pydantic model of its settings.

    Attributes:
      recurrent: whether acts depend on what the lane has seen before; optional, False where it is missing.
      horizon: exchanges per rollout; 0 where the policy never learns.
      extras: name -> (shape behind the lane axis, dtype) of what ``act`` leaves in the rollout for ``learn``.
    """

    Settings: type
    horizon: int
    extras: dict[str, tuple[tuple[int, ...], Any]]

    def __init__(self, spaces: EntitySpaces, settings: Any, *, lanes: int, seed: int, device: str = "cpu") -> None:
        """Build the networks.

        Raises:
          ConfigError: the spaces or the settings cannot be served; the message says which and what could.
        """

    def act(
        self,
        observations: Any,
        *,
        action_mask: np.ndarray | None = None,
        starts: np.ndarray | None = None,
        lanes: slice | np.ndarray | None = None,
        deterministic: bool = False,
        learning: bool = False,
    ) -> Decision:
        """Decide for N lanes at once.

        Args:
          observations: array ``[N, ...]``, or a nested dict or tuple of such arrays; read only, like all that follows:
            they lie where they have arrived, and are valid during the call.
          action_mask: ``[N, mask_size]``, nonzero is allowed; None allows everything.
          starts: ``[N]`` bool, True where this is the first observation of an episode (memory is cleared there).
          lanes: which of the worker's lanes these are (memory is kept per lane), a slice; a ``recurrent`` policy
            is also given their numbers, where games outside ask; None keeps no memory.
          deterministic: take the mode of the distribution.
          learning: also compute ``extras``.

        Raises:
          FloatingPointError: the networks answer with something that is not finite.
        """

    def bootstrap(
        self,
        observations: Any,
        *,
        action_mask: np.ndarray | None = None,
        starts: np.ndarray | None = None,
        lanes: slice | np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the values ``[N]`` of observations that end a rollout; unlike ``act`` it leaves the memory alone.

        Optional: it is called only where ``extras`` has ``value``.
        """

    def learn(self, rollout: Rollout, group: Reducer) -> dict[str, float]:
        """Update from one rollout, with all workers of the player, and return metrics.

        The metrics are those of the whole group. All workers make the same number of reductions, whatever they hold.

        Raises:
          FloatingPointError: a loss or a gradient is not finite; raised by all workers together.
        """

    def set_progress(self, done: float) -> None:
        """Tell the schedules how much of the budget is spent, from 0 to 1."""

    def configure(self, forward: dict[str, Any], data: dict[str, Any]) -> None:
        """Take what a league's job says, before a rollout; optional.

        Args:
          forward: settings of acting: ``eps``, the probability of a random action.
          data: settings of learning that take the place of the policy's own.

        Raises:
          ConfigError: the policy cannot do that.
        """

    def weights(self) -> dict[str, Any]:
        """Return what ``act`` needs, as named torch tensors: this is what snapshots hold."""

    def load_weights(self, weights: dict[str, Any]) -> None:
        """Load what ``weights`` returned."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that learning needs to go on and that all workers of a player share.

        It is a flat dict of torch tensors: weights, optimizer, counters and progress (as 0-d tensors).
        """

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what ``state_dict`` returned."""

    def worker_state(self) -> dict[str, Any]:
        """Return what is this worker's own: a flat dict of arrays (random generator, memory of the lanes)."""

    def load_worker_state(self, state: dict[str, Any]) -> None:
        """Load what ``worker_state`` returned."""

    def inference(self) -> "Inference":
        """Return the policy as a torch module that others run; optional: one without it cannot be exported."""

    def replay_state(self) -> dict[str, Any]:
        """Return what this worker has collected to learn from again, a flat dict of arrays; optional.

        It is apart from ``worker_state`` because it may be large, and because a deterministic run goes on with it.
        """

    def load_replay_state(self, state: dict[str, Any]) -> None:
        """Load what ``replay_state`` returned; optional."""
