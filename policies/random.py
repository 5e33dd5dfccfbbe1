"""The random policy: samples any allowed action and learns nothing."""

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces as gym_spaces

from arena.common.errors import ConfigError
from arena.common.seeding import generator_state, new_generator, set_generator_state
from arena.common.trees import map_space
from arena.envs.interface import EntitySpaces
from arena.policies.action_spaces import check_mask, count_flags
from arena.policies.interface import Decision, Reducer
from arena.policies.settings.random import RandomSettings


class Random:
    """Samples each lane's action uniformly from its space, or from the actions that its mask allows."""

    Settings = RandomSettings
    horizon = 0
    extras: ClassVar[dict[str, tuple[tuple[int, ...], Any]]] = {}

    def __init__(
        self, spaces: EntitySpaces, settings: RandomSettings, *, lanes: int, seed: int, device: str = "cpu"
    ) -> None:
        """See ``Policy``; it computes nothing, so that the device is irrelevant."""
        map_space(spaces.action, _refuse_unknown)
        check_mask(spaces)
        self._space = spaces.action
        self._random = new_generator(seed)

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
        """See ``Policy``; a uniform distribution has no mode, so that ``deterministic`` is ignored."""
        count = _count(observations)
        return Decision(_sample(self._space, count, action_mask, self._random), {})

    def probabilities(self, observations: Any, action_mask: np.ndarray | None = None) -> np.ndarray:
        """Return the probability of every action, ``[N, actions]``: uniform over the allowed ones.

        Raises:
          ConfigError: the action space is not Discrete.
        """
        if not isinstance(self._space, gym_spaces.Discrete):
            raise ConfigError(
                f"expected a Discrete action space, so that probabilities can be listed; found {self._space}"
            )
        shape = (_count(observations), int(self._space.n))
        allowed = np.ones(shape) if action_mask is None else (action_mask != 0).astype(np.float64)
        return allowed / allowed.sum(1, keepdims=True)

    def bootstrap(
        self,
        observations: Any,
        *,
        action_mask: np.ndarray | None = None,
        starts: np.ndarray | None = None,
        lanes: slice | None = None,
    ) -> np.ndarray:
        """Return zeros."""
        return np.zeros(_count(observations), np.float32)

    def learn(self, rollout: Any, group: Reducer) -> dict[str, float]:
        """Do nothing."""
        return {}

    def set_progress(self, done: float) -> None:
        """Do nothing: there are no schedules."""

    def weights(self) -> dict[str, Any]:
        """Return an empty dict: there are no weights."""
        return {}

    def load_weights(self, weights: dict[str, Any]) -> None:
        """Load nothing."""
        if weights:
            raise ConfigError(f"random has no weights: expected no tensors, found {', '.join(sorted(weights))}")

    def state_dict(self) -> dict[str, Any]:
        """Return an empty dict: no state is shared."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load nothing."""
        self.load_weights(state)

    def worker_state(self) -> dict[str, np.ndarray]:
        """Return the state of the random generator."""
        return {"generator": generator_state(self._random)}

    def load_worker_state(self, state: dict[str, Any]) -> None:
        """Load a state returned by ``worker_state``."""
        set_generator_state(self._random, state["generator"])


def _count(observations: Any) -> int:
    while isinstance(observations, (dict, tuple)):
        observations = next(iter(observations.values())) if isinstance(observations, dict) else observations[0]
    return len(observations)


def _refuse_unknown(space: gym_spaces.Space) -> None:
    known = (gym_spaces.Box, gym_spaces.Discrete, gym_spaces.MultiDiscrete, gym_spaces.MultiBinary)
    if not isinstance(space, known):
        raise ConfigError(
            f"random cannot sample {space}: expected Box, Discrete, MultiDiscrete, MultiBinary, or Dict and "
            f"Tuple of them"
        )


def _sample(space: gym_spaces.Space, count: int, mask: np.ndarray | None, random: np.random.Generator) -> Any:
    """Return ``count`` samples as one array (or nest of arrays); ``mask`` is ``[count, flags]``."""
    if isinstance(space, (gym_spaces.Dict, gym_spaces.Tuple)):
        subspaces = list(space.spaces.values()) if isinstance(space, gym_spaces.Dict) else space.spaces
        ends = np.cumsum([count_flags(sub) for sub in subspaces])
        parts = [
            _sample(sub, count, None if mask is None else mask[:, end - count_flags(sub) : end], random)
            for sub, end in zip(subspaces, ends, strict=True)
        ]
        return dict(zip(space.spaces, parts, strict=True)) if isinstance(space, gym_spaces.Dict) else tuple(parts)
    if isinstance(space, gym_spaces.Discrete):
        return (space.start + _categorical(int(space.n), count, mask, random)).astype(space.dtype)
    if isinstance(space, gym_spaces.MultiDiscrete):
        sizes = space.nvec.ravel()
        ends = np.cumsum(sizes)
        columns = [
            _categorical(int(size), count, None if mask is None else mask[:, end - size : end], random)
            for size, end in zip(sizes, ends, strict=True)
        ]
        return (np.stack(columns, -1).reshape(count, *space.shape) + space.start).astype(space.dtype)
    if isinstance(space, gym_spaces.MultiBinary):
        return random.integers(0, 2, (count, *space.shape), dtype=space.dtype)
    assert isinstance(space, gym_spaces.Box)
    return _box(space, count, random)


def _categorical(size: int, count: int, mask: np.ndarray | None, random: np.random.Generator) -> np.ndarray:
    if mask is None:
        return random.integers(0, size, count)
    # The allowed action with the highest random number; any action for a lane that does not act and allows none.
    tickets = random.random((count, size), np.float32)
    return np.where(mask != 0, tickets, -1).argmax(-1)


def _box(space: gym_spaces.Box, count: int, random: np.random.Generator) -> np.ndarray:
    """Sample as ``Box.sample`` does: uniform between bounds, exponential beside one, normal without any."""
    shape = (count, *space.shape)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    if np.issubdtype(space.dtype, np.integer):
        whole = random.integers(space.low.astype(np.int64), space.high.astype(np.int64), shape, endpoint=True)
        return whole.astype(space.dtype)
    above, below = space.bounded_below, space.bounded_above
    if above.all() and below.all():
        return (low + (high - low) * random.random(shape)).astype(space.dtype)
    samples = random.standard_normal(shape)
    steps = random.standard_exponential(shape)
    samples = np.where(above & ~below, np.where(above, low, 0) + steps, samples)
    samples = np.where(below & ~above, np.where(below, high, 0) - steps, samples)
    both = above & below
    width = np.where(both, high, 0) - np.where(both, low, 0)
    return np.where(both, np.where(both, low, 0) + width * random.random(shape), samples).astype(space.dtype)
