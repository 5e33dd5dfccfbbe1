"""Adapter of a list environment (the convention of AI-Arena): lists by entity, and a single ``done`` for all."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.envs.adapters.wrapped import Wrapped
from arena.envs.global_state import StateReader
from arena.envs.interface import EntitySpaces, Timestep
from arena.envs.options import NO_OPTIONS, AdapterOptions
from arena.envs.spaces import EntityAdapter, check_spaces

STEP_FORM = "expected step to return (observations, rewards, done, info), the first two with one item per entity"


def space_lists(env: Any) -> tuple[list[spaces.Space], list[spaces.Space]] | None:
    """Return the observation and action spaces of a list environment, or None if ``env`` is not one."""
    lists = []
    for kind in ("observation", "action"):
        listed = getattr(env, f"{kind}_spaces", None)
        if not isinstance(listed, (list, tuple)):
            listed = getattr(env, f"{kind}_space", None)
        if not isinstance(listed, (list, tuple)):
            return None
        lists.append(list(listed))
    return lists[0], lists[1]


class ListEnvironment(Wrapped):
    """An environment with entities ``entity_0``, ``entity_1``, ... that act together until the episode is over for all.

    ``done`` means truncated if the info (or that of any entity) has a true ``TimeLimit.truncated`` or ``truncated``,
    and terminated otherwise. ``reset`` returns the observations or ``(observations, infos)``; it gets ``seed`` and
    ``options`` if it accepts them, else a method ``seed(seed)`` is called. The global state is that of ``state()``, if
    the environment has a ``state_space``.
    """

    turn_based = False

    def __init__(self, env: Any, options: AdapterOptions = NO_OPTIONS) -> None:
        """Adapt ``env``.

        Raises:
          ConfigError: its lists of spaces differ in length, or a space is not supported.
        """
        lists = space_lists(env)
        if lists is None:
            raise ConfigError("expected lists observation_spaces and action_spaces with one space per entity")
        observation_spaces, action_spaces = lists
        if len(observation_spaces) != len(action_spaces):
            raise ConfigError(
                f"expected one observation space and one action space per entity, found {len(observation_spaces)} "
                f"and {len(action_spaces)}"
            )
        super().__init__(env)
        pairs = zip(observation_spaces, action_spaces, strict=True)
        self._adapters = [EntityAdapter(f"entity_{i}", *pair, options) for i, pair in enumerate(pairs)]
        self.entities: tuple[EntitySpaces, ...] = tuple(adapter.spaces for adapter in self._adapters)
        check_spaces(self.entities)
        self._state = StateReader(getattr(env, "state_space", None))
        self.state_space = self._state.space
        self._everybody = (True,) * len(self._adapters)
        self._nobody = (False,) * len(self._adapters)
        self._all_allowed = tuple(adapter.all_allowed for adapter in self._adapters)
        parameters = inspect.signature(env.reset).parameters
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self._takes = {name for name in ("seed", "options") if takes_all or name in parameters}
        self._checked = False

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Start an episode. The form of the first observations is checked against the spaces."""
        arguments = {name: value for name, value in (("seed", seed), ("options", options)) if name in self._takes}
        if seed is not None and "seed" not in self._takes and callable(getattr(self.env, "seed", None)):
            self.env.seed(seed)
        observations, info = self._split(self.env.reset(**arguments))
        if not self._checked:
            self._check_length("observations", observations)
            for adapter, observation in zip(self._adapters, observations, strict=True):
                adapter.check(observation)
            self._checked = True
        return self._timestep(observations, [0.0] * len(self._adapters), self._nobody, self._nobody, info, False)

    def _split(self, returned: Any) -> tuple[Sequence, Any]:
        """Return observations and infos from a result of ``reset``, which has infos or not."""
        if isinstance(returned, tuple) and len(returned) == 2:
            observations, info = returned
            infos = info if isinstance(info, (list, tuple)) else [info]
            listed = isinstance(observations, (list, tuple)) and len(observations) == len(self._adapters)
            if listed and all(isinstance(item, Mapping) for item in infos):
                return observations, info
        return returned, {}

    def step(self, actions: Sequence) -> Timestep:
        """Step once with a list of actions, one per entity."""
        copied = [adapter.copy_action(action) for adapter, action in zip(self._adapters, actions, strict=True)]
        returned = self.env.step(copied)
        if not isinstance(returned, (list, tuple)) or len(returned) != 4:
            description = f"{len(returned)} items" if isinstance(returned, (list, tuple)) else type(returned).__name__
            raise ConfigError(f"{STEP_FORM}; found {description}")
        observations, rewards, done, info = returned
        self._check_length("observations", observations)
        self._check_length("rewards", rewards)
        if np.ndim(done):
            raise ConfigError(
                f"{STEP_FORM}; found several values of done ({done!r:.80}). Entities that end at different times need "
                "a PettingZoo ParallelEnv"
            )
        rewards = [float(reward) for reward in rewards]
        if not done:
            return self._timestep(observations, rewards, self._nobody, self._nobody, info, False)
        cut = any(_is_truncated(item) for item in (info if isinstance(info, (list, tuple)) else [info]))
        ended = (self._nobody, self._everybody) if cut else (self._everybody, self._nobody)
        return self._timestep(observations, rewards, *ended, info, True)

    def _check_length(self, subject: str, items: Any) -> None:
        if not hasattr(items, "__len__") or len(items) != len(self._adapters):
            length = f"{len(items)}" if hasattr(items, "__len__") else type(items).__name__
            raise ConfigError(
                f"list environment: expected {len(self._adapters)} {subject}, one per entity, found {length}"
            )

    def _timestep(
        self,
        observations: Sequence,
        rewards: list[float],
        terminated: Sequence[bool],
        truncated: Sequence[bool],
        info: Any,
        over: bool,
    ) -> Timestep:
        count = len(self._adapters)
        # One dict for all is common: each entity gets a copy, so that additions to one stay there.
        infos = [dict(item) for item in (info if isinstance(info, (list, tuple)) else [info or {}] * count)]
        masks: Sequence[np.ndarray | None] = self._all_allowed
        if not over:
            masks = [self._adapters[i].mask(observations[i], infos[i]) for i in range(count)]
        observed = [
            adapter.observe(observation) for adapter, observation in zip(self._adapters, observations, strict=True)
        ]
        acting = self._nobody if over else self._everybody
        return Timestep(observed, rewards, terminated, truncated, infos, acting, masks, over)

    def state(self) -> Any:
        """Return the global state; see ``StatefulEnvironment``."""
        return self._state.read(self.env.state())


def _is_truncated(info: Any) -> bool:
    return isinstance(info, Mapping) and bool(info.get("TimeLimit.truncated") or info.get("truncated"))
