"""The one interface that an environment process steps: an ordered list of entities, lists in, lists out."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, SupportsFloat

import numpy as np
from gymnasium import spaces


class EntitySpaces(NamedTuple):
    """What one entity sees and does.

    Attributes:
      name: the entity's name, unique in its environment (PettingZoo: the agent).
      observation: its observation space; any nesting of Dict and Tuple over Box, Discrete, MultiDiscrete, MultiBinary.
      action: its action space, likewise.
      mask_size: number of flags in its action mask, 0 where it has none. Discrete(n) has n flags;
        MultiDiscrete has the sum of its sizes, one run of flags after the other.
    """

    name: str
    observation: spaces.Space
    action: spaces.Space
    mask_size: int = 0


class Timestep(NamedTuple):
    """What follows a reset or a step: one list item per entity, in the order of ``Environment.entities``.

    Sequences may be lists; with tuples of flags the usual step, in which all act and nobody is done, is told faster.

    Attributes:
      observations: member of each entity's observation space. An entity that is done or absent keeps its last one.
      rewards: what each entity collected since its last action, delivered when it acts next or is done, else 0.
      terminated: True in the one step in which the entity's episode ends by the rules of the game.
      truncated: True in the one step in which it is cut for another reason (a time limit).
      infos: a dict for each entity; ``info["outcome"]`` may say how the episode ended: ``"win"``, ``"draw"``,
        ``"loss"`` or a rank (0 is best); ``info["metrics"]``, in the last step, what the environment has measured:
        numbers by name, which go into records, plots and the live view.
      acting: whether each entity's next action counts. None of a finished episode's entities acts.
      action_masks: array of ``mask_size`` flags (int8, 1 is allowed) for each entity, or None where it has no mask.
      over: whether the episode is over for everybody; ``reset`` must follow.
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
    """An environment of one entity that can also be stepped in its own form, which is Gymnasium's.

    Attributes:
      native_step: takes an action, a NumPy scalar or array that is only valid during the call; returns observation,
        reward, whether the episode has terminated and whether it was truncated, and an info. None where that does not
        say all that a timestep does.
    """

    entities: tuple[EntitySpaces, ...]
    native_step: Callable[[Any], tuple[Any, SupportsFloat, bool, bool, dict]] | None

    def timestep_of(
        self, observation: Any, reward: SupportsFloat, terminated: bool, truncated: bool, info: dict
    ) -> Timestep:
        """Return what ``native_step`` has returned as a timestep."""


class Environment(Protocol):
    """An environment with one or more entities. It does not reset itself: ``reset`` follows ``Timestep.over``."""

    entities: tuple[EntitySpaces, ...]
    turn_based: bool  # True where entities may skip steps (``acting`` is not all True until they are done)

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Start an episode. Rewards are 0, nothing is terminated or truncated, ``over`` is False."""

    def step(self, actions: Sequence[Any]) -> Timestep:
        """Step once. ``actions`` has one item per entity; those of entities that do not act are ignored.

        An action is a NumPy scalar or array, or a nested dict or tuple of them, and is only valid during the call:
        a caller that keeps one must copy it.
        """

    def render(self) -> np.ndarray | None:
        """Return an RGB array ``[height, width, 3]`` of uint8, or None where nothing can be drawn."""

    def close(self) -> None:
        """Release what the environment holds. Calling it twice does nothing."""
