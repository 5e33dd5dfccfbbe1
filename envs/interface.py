"""The interface of environments inside an environment process: each call takes and returns lists, by entity."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol, SupportsFloat

import numpy as np
from gymnasium import spaces


class EntitySpaces(NamedTuple):
    """The spaces of one entity.

    Attributes:
      name: the entity's name, unique in its environment (PettingZoo: the agent).
      observation: observation space of the entity; any nesting of Dict and Tuple over Box, Discrete, MultiDiscrete and
        MultiBinary.
      action: action space of the entity; any nesting of the same.
      mask_size: number of flags in the entity's action mask, 0 without a mask. Discrete(n) has n flags; MultiDiscrete
        has the sum of its sizes, the flags of one choice after those of another.
      global_state: space of the global state that a policy reads while it learns; None if it reads none. Environments
        leave it None: a seat's worker requests it.
      team: the entities of its seat. Environments leave it None: it is known where policies are built.
    """

    name: str
    observation: spaces.Space
    action: spaces.Space
    mask_size: int = 0
    global_state: spaces.Space | None = None
    team: "Team | None" = None


class Team(NamedTuple):
    """The entities of one seat, and those of them that one policy object acts for.

    Attributes:
      entities: all entities of the seat, in its order.
      positions: indices of those with equal spaces that lanes belong to: lane i to ``positions[i % len(positions)]``.
    """

    entities: tuple[EntitySpaces, ...]
    positions: tuple[int, ...]

    def kinds(self) -> "tuple[Team, ...]":
        """Return the team for each kind of entities, those with equal spaces, in order of first appearance."""
        kinds: list[list[int]] = []
        for position, entity in enumerate(self.entities):
            for positions in kinds:
                known = self.entities[positions[0]]
                same_mask = known.mask_size == entity.mask_size
                if same_mask and known.observation == entity.observation and known.action == entity.action:
                    positions.append(position)
                    break
            else:
                kinds.append([position])
        return tuple(Team(self.entities, tuple(positions)) for positions in kinds)


class Timestep(NamedTuple):
    """The result of a reset or a step: one list item per entity, in the order of ``Environment.entities``.

    Sequences may be lists. With tuples of flags, a step in which all entities act and none is done is processed faster.

    Attributes:
      observations: an observation of each entity, a member of its space. A done or absent entity keeps its last one.
      rewards: sum of the rewards of each entity since its last action, in the step in which it acts next or is done;
        0 in other steps.
      terminated: True in the step in which the entity's episode ends by the rules of the game.
      truncated: True in the step in which the episode ends for another reason (a time limit).
      infos: a dict for each entity; ``info["outcome"]`` may hold the result of the episode: ``"win"``, ``"draw"``,
        ``"loss"`` or a rank (0 is best); ``info["metrics"]``, in the last step, has the measurements of the
        environment: numbers by name, which the records, plots and the live view show.
      acting: whether the next action of each entity counts; False for all entities after the end of an episode.
      action_masks: array ``[mask_size]`` of int8 for each entity, 1 for allowed actions; None without a mask.
      over: whether the episode is over for all entities; ``reset`` must follow.
    """

    observations: Sequence[Any]
    rewards: Sequence[float]
    terminated: Sequence[bool]
    truncated: Sequence[bool]
    infos: Sequence[dict]
    acting: Sequence[bool]
    action_masks: Sequence[np.ndarray | None]
    over: bool


class NativeEnvironment(Protocol):
    """An environment of one entity that can also be stepped by the interface of Gymnasium.

    Attributes:
      native_step: takes an action, a NumPy scalar or array that is only valid during the call; returns observation,
        reward, terminated, truncated and info. None if these do not contain everything that a timestep contains.
    """

    entities: tuple[EntitySpaces, ...]
    native_step: Callable[[Any], tuple[Any, SupportsFloat, bool, bool, dict]] | None

    def timestep_of(
        self, observation: Any, reward: SupportsFloat, terminated: bool, truncated: bool, info: dict
    ) -> Timestep:
        """Return the timestep for a result of ``native_step``."""

    def number_of(self, reward: Any) -> float:
        """Return the number in a reward that ``float`` does not accept.

        Raises:
          ContractError: there is none.
        """

    def raise_step_error(self, returned: Any, error: Exception) -> NoReturn:
        """Raise the error for a result of ``native_step`` that does not have five parts.

        Raises:
          ContractError: always; the message describes the result.
        """


class Environment(Protocol):
    """An environment with one or more entities. It does not reset itself: the caller calls ``reset`` after ``over``.

    An environment with a global state, which critics may read while learning, has two more attributes, see
    ``StatefulEnvironment``.
    """

    entities: tuple[EntitySpaces, ...]
    turn_based: bool  # True if entities may skip steps (``acting`` is not all True until they are done)

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Start an episode and return its first timestep: rewards are 0; terminated, truncated and over are False."""

    def step(self, actions: Sequence[Any]) -> Timestep:
        """Step once. ``actions`` has one item per entity; items of entities that do not act are ignored.

        An action is a NumPy scalar or array, or a nested dict or tuple of them, and is only valid during the call:
        a caller that keeps one must copy it.
        """

    def render(self) -> np.ndarray | None:
        """Return an RGB array ``[height, width, 3]`` of uint8, or None if the environment cannot render."""

    def close(self) -> None:
        """Release the environment's resources. Calling it twice does nothing."""


class StatefulEnvironment(Environment, Protocol):
    """An environment with a global state.

    Attributes:
      state_space: space of the state: any nesting that an observation may have.
    """

    state_space: spaces.Space

    def state(self) -> Any:
        """Return the state after the latest ``reset`` or ``step``, also after the step that ends an episode.

        It is a member of ``state_space``, valid until the next call. Nothing calls it unless a policy reads it.
        """


def state_space_of(environment: Environment) -> spaces.Space | None:
    """Return the space of an environment's own global state; None if it has none."""
    return getattr(environment, "state_space", None)


def with_global_state(entities: Sequence[EntitySpaces], space: spaces.Space | None) -> tuple[EntitySpaces, ...]:
    """Return entities with this space as their ``global_state``."""
    return tuple(entity._replace(global_state=space) for entity in entities)
