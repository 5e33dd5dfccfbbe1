"""The interface of act-learn policies: ``act`` needs no environment, ``learn`` needs no MPI."""

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Decision, Rollout
from arena.tensors.reducer import Reducer

if TYPE_CHECKING:
    from arena.policies.inference import Inference

__all__ = ["Decision", "Policy", "Reducer"]


class Policy(Protocol):
    """Interface of an algorithm; the worker calls its ``act`` and ``learn``.

    A *lane* is one entity in one environment copy; a worker has ``copies * entities`` of them, copies first.

    The order of calls, for each batch of lanes: ``act`` in the time steps 0 to T - 1 of a rollout and, if ``extras``
    has ``value``, ``bootstrap`` in step T; then, when all lanes are complete, ``learn``; then ``act`` again on the
    observations of step T, which is step 0 of the next rollout. ``act`` is called on all lanes of a batch in every
    step, including those that do not act in it.

    With ``learners`` there are two objects of the class: the worker's, on which ``act``, ``bootstrap`` and ``complete``
    are called, and the learner's, on which ``learn`` is called with the rollouts of several workers side by side.

    Class attributes:
      Settings: the pydantic model of its settings. If these have a true attribute ``reads_global_state``, rollouts hold
        the global state, and ``spaces.global_state`` is its space wherever the policy learns; elsewhere it is None.

    Attributes:
      recurrent: whether actions depend on earlier observations of the lane; optional, False if it is missing.
      horizon: steps per rollout; 0 if the policy never learns.
      partners: policies that act for the other kinds of entities of the seat, with the same networks; optional. They
        have ``act`` and ``extras``, and this policy learns from the rollouts of all of them.
      recomputes_outputs: whether ``complete`` fills in what ``act`` leaves out of ``extras``, and recurrent states are
        recomputed after an update; optional. The engine sets it to False where weights change within a rollout
        (external games), and in a learner, which has no lanes that act.
      changing_players: whether other players of its matches change; optional. The engine sets it before
        ``fit_to_group``: true if another player of a match learns, and in a league with opponents.
      extras: name -> (shape behind the lane axis, dtype) of the arrays that ``act`` adds to the rollout for ``learn``.
    """

    Settings: type
    horizon: int
    extras: dict[str, tuple[tuple[int, ...], Any]]

    def __init__(self, spaces: EntitySpaces, settings: Any, *, lanes: int, seed: int, device: str = "cpu") -> None:
        """Build the networks.

        Raises:
          ConfigError: the policy does not support the spaces or the settings; the message lists those that it supports.
        """

    def fit_to_group(self, lanes: int, *, entities: int) -> None:
        """Set parameters that depend on the group's total number of lanes, such as ``horizon``; optional.

        It is called once, before anything else.

        Args:
          lanes: number of lanes of all workers of the player together.
          entities: number of lanes in each copy.
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
        """Choose actions for N lanes.

        Args:
          observations: array ``[N, ...]``, or a nested dict or tuple of such arrays. All arguments are read-only views
            of receive buffers, which are valid during the call only.
          action_mask: ``[N, mask_size]``, nonzero is allowed; None allows everything.
          starts: ``[N]`` bool, True for the first observation of an episode, at which recurrent states are reset.
          lanes: the lanes of the worker, which identify recurrent states: a slice, or an array of lane numbers for a
            ``recurrent`` policy behind a gateway; None for a call without stored states.
          deterministic: whether to return the mode of the distribution.
          learning: whether to compute ``extras``.

        Raises:
          FloatingPointError: an output of the networks is not finite.
        """

    def bootstrap(
        self,
        observations: Any,
        *,
        action_mask: np.ndarray | None = None,
        starts: np.ndarray | None = None,
        lanes: slice | np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the values ``[N]`` of the last observations of a rollout, without changing recurrent states.

        Optional: it is called only if ``extras`` has ``value``.
        """

    def complete(self, rollout: Rollout) -> None:
        """Compute the ``extras`` of a rollout that ``act`` does not compute; optional.

        It is called when all lanes are complete, with the weights that acted, before ``learn``.
        """

    def learn(self, rollout: Rollout, group: Reducer) -> dict[str, float]:
        """Update from one rollout, with all workers of the player, and return metrics.

        The metrics are those of the whole group. All workers make the same number of reductions.

        Raises:
          FloatingPointError: a loss or a gradient is not finite; raised by all workers together.
        """

    def set_progress(self, done: float) -> None:
        """Set the spent fraction of the budget, from 0 to 1, for the schedules."""

    def configure(self, forward: dict[str, Any], data: dict[str, Any]) -> None:
        """Apply the settings of a league's job, before a rollout; optional.

        Args:
          forward: settings of acting: ``eps``, the probability of a random action.
          data: settings of learning that replace those of the policy.

        Raises:
          ConfigError: the policy does not support such a setting.
        """

    def weights(self) -> dict[str, Any]:
        """Return the weights that ``act`` needs, as named torch tensors; snapshots contain them."""

    def load_weights(self, weights: dict[str, Any]) -> None:
        """Load weights returned by ``weights``."""

    def encoders(self) -> list[Any]:
        """Return the encoders of the observation, and of what else networks read; of built-in policies only."""

    def acting_state(self) -> dict[str, Any]:
        """Return the part of a learner's state that acting needs: named torch tensors of constant shapes.

        Optional: ``weights`` by default.
        """

    def load_acting_state(self, state: dict[str, Any]) -> None:
        """Load a state returned by ``acting_state``; optional, too."""

    def state_dict(self) -> dict[str, Any]:
        """Return the training state that all workers of a player share.

        It is a flat dict of torch tensors: weights, optimizer, counters and progress (as 0-d tensors).
        """

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state returned by ``state_dict``."""

    def worker_state(self) -> dict[str, Any]:
        """Return this worker's own state: a flat dict of arrays (random generator, recurrent states of the lanes)."""

    def load_worker_state(self, state: dict[str, Any]) -> None:
        """Load a state returned by ``worker_state``."""

    def inference(self) -> "Inference":
        """Return the policy as a torch module for export; optional: a policy without it cannot be exported."""

    def replay_state(self) -> dict[str, Any]:
        """Return the replay of this worker, a flat dict of arrays; optional.

        It is separate from ``worker_state`` because it may be large, and because a deterministic run needs it.
        """

    def load_replay_state(self, state: dict[str, Any]) -> None:
        """Load a state returned by ``replay_state``; optional."""
