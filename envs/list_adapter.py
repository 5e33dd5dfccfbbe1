"""A list environment, the convention of AI-Arena: lists with one item per entity, and a single ``done`` for all."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces, Timestep
from arena.envs.rendering import rgb_array
from arena.envs.spaces import EntityAdapter, check_spaces

STEP_FORM = "expected step to return (observations, rewards, done, info), the first two with one item per entity"


def space_lists(env: Any) -> tuple[list[spaces.Space], list[spaces.Space]] | None:
    """Return the observation and action spaces of a list environment, or None where ``env`` is none."""
    found = []
    for kind in ("observation", "action"):
        listed = getattr(env, f"{kind}_spaces", None)
        if not isinstance(listed, (list, tuple)):
            listed = getattr(env, f"{kind}_space", None)
        if not isinstance(listed, (list, tuple)):
            return None
        found.append(list(listed))
    return found[0], found[1]


class ListEnvironment:
    """The entities are named ``entity_0``, ``entity_1``, ... and act together until the episode is over for all.

    ``done`` means truncated where the info (or that of any entity) has a true ``TimeLimit.truncated`` or ``truncated``,
    and terminated otherwise. ``reset`` returns the observations or ``(observations, infos)``; ``seed`` and ``options``
    are passed to it where it takes them, and a method ``seed(seed)`` is called where it does not.
    """

    turn_based = False

    def __init__(self, env: Any) -> None:
        """Adapt ``env``.

        Raises:
          ConfigError: its lists of spaces differ in length, or a space is not supported.
        """
        found = space_lists(env)
        if found is None:
            raise ConfigError("expected lists observation_spaces and action_spaces with one space per entity")
        observation_spaces, action_spaces = found
        if len(observation_spaces) != len(action_spaces):
            raise ConfigError(
                f"expected one observation space and one action space per entity, found {len(observation_spaces)} "
                f"and {len(action_spaces)}"
            )
        self.env = env
        pairs = zip(observation_spaces, action_spaces, strict=True)
        self._ports = [EntityAdapter(f"entity_{i}", *pair) for i, pair in enumerate(pairs)]
        self.entities: tuple[EntitySpaces, ...] = tuple(port.spaces for port in self._ports)
        check_spaces(self.entities)
        self._everybody = (True,) * len(self._ports)
        self._nobody = (False,) * len(self._ports)
        self._all_allowed = tuple(port.all_allowed for port in self._ports)
        parameters = inspect.signature(env.reset).parameters
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self._takes = {name for name in ("seed", "options") if takes_all or name in parameters}
        self._checked = False
        self._closed = False

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Start an episode. The form of the first observations ever is checked against the spaces."""
        given = {name: value for name, value in (("seed", seed), ("options", options)) if name in self._takes}
        if seed is not None and "seed" not in self._takes and callable(getattr(self.env, "seed", None)):
            self.env.seed(seed)
        observations, info = self._split(self.env.reset(**given))
        if not self._checked:
            self._check_length("observations", observations)
            for port, observation in zip(self._ports, observations, strict=True):
                port.check(observation)
            self._checked = True
        return self._timestep(observations, [0.0] * len(self._ports), self._nobody, self._nobody, info, False)

    def _split(self, returned: Any) -> tuple[Sequence, Any]:
        """Return observations and infos of what ``reset`` returned, with or without infos."""
        if isinstance(returned, tuple) and len(returned) == 2:
            observations, info = returned
            infos = info if isinstance(info, (list, tuple)) else [info]
            listed = isinstance(observations, (list, tuple)) and len(observations) == len(self._ports)
            if listed and all(isinstance(item, Mapping) for item in infos):
                return observations, info
        return returned, {}

    def step(self, actions: Sequence) -> Timestep:
        """Step once with one action per entity, in a list."""
        copied = [port.copy_action(action) for port, action in zip(self._ports, actions, strict=True)]
        returned = self.env.step(copied)
        if not isinstance(returned, (list, tuple)) or len(returned) != 4:
            found = f"{len(returned)} items" if isinstance(returned, (list, tuple)) else type(returned).__name__
            raise ConfigError(f"{STEP_FORM}; found {found}")
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

    def _check_length(self, what: str, items: Any) -> None:
        if not hasattr(items, "__len__") or len(items) != len(self._ports):
            found = f"{len(items)}" if hasattr(items, "__len__") else type(items).__name__
            raise ConfigError(f"list environment: expected {len(self._ports)} {what}, one per entity, found {found}")

    def _timestep(
        self,
        observations: Sequence,
        rewards: list[float],
        terminated: Sequence[bool],
        truncated: Sequence[bool],
        info: Any,
        over: bool,
    ) -> Timestep:
        count = len(self._ports)
        # One dict for all is common: each entity gets its own, so that what is added to one stays there.
        infos = [dict(item) for item in (info if isinstance(info, (list, tuple)) else [info or {}] * count)]
        masks: Sequence[np.ndarray | None] = self._all_allowed
        if not over:
            masks = [self._ports[i].mask(observations[i], infos[i]) for i in range(count)]
        seen = [port.observe(observation) for port, observation in zip(self._ports, observations, strict=True)]
        acting = self._nobody if over else self._everybody
        return Timestep(seen, rewards, terminated, truncated, infos, acting, masks, over)

    def render(self) -> np.ndarray | None:
        """Return an RGB array, or None unless the environment has ``render_mode="rgb_array"``."""
        return rgb_array(self.env)

    def close(self) -> None:
        """Close the environment, once, where it has something to close."""
        if not self._closed:
            self._closed = True
            if callable(getattr(self.env, "close", None)):
                self.env.close()


def _is_truncated(info: Any) -> bool:
    return isinstance(info, Mapping) and bool(info.get("TimeLimit.truncated") or info.get("truncated"))
