"""Adapter of a Gymnasium environment of several agents by Tuple spaces and lists (the convention of EPyMARL)."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from arena.common.errors import ConfigError, ContractError
from arena.common.user_code import source_of
from arena.envs.adapters.breach import call_reset, check_reset, check_step, describe, number_of, warn_of_mask
from arena.envs.adapters.wrapped import Wrapped
from arena.envs.global_state import StateReader
from arena.envs.interface import EntitySpaces, Timestep
from arena.envs.options import NO_OPTIONS, AdapterOptions
from arena.envs.spaces import MASK_KEY, EntityAdapter, check_spaces, declares_mask, flags_in, zeros


def has_tuple_agents(env: Any, options: AdapterOptions = NO_OPTIONS) -> bool:
    """Return whether an environment has several agents, one for each item of its Tuple spaces.

    A single agent may well have such spaces: unless the configuration states it, the environment or one of its wrappers
    must have an ``n_agents`` of that number.
    """
    if not isinstance(env, gymnasium.Env) or options.agents not in ("auto", "tuple"):
        return False
    if options.agents == "tuple":
        return True
    observation, action = env.observation_space, env.action_space
    if not (isinstance(observation, spaces.Tuple) and isinstance(action, spaces.Tuple)):
        return False
    count = env.get_wrapper_attr("n_agents") if env.has_wrapper_attr("n_agents") else None
    return len(observation) == len(action) == count


class TupleEnvironment(Wrapped):
    """An environment with entities ``entity_0``, ``entity_1``, ..., one for each item of its Tuple spaces.

    Rewards are a sequence, or one number that each entity gets. ``terminated`` and ``truncated`` are a flag for all, or
    a sequence: an entity may be done before the others, and its action is zero from then on. Masks are those of Dict
    observations, or the items of ``info["action_mask"]`` or ``info["avail_actions"]`` where the environment's metadata
    has ``"action_mask": True`` or the configuration ``env.action_mask: info``. The global state is that of
    ``state()``, if the environment or one of its wrappers has a ``state_space``.
    """

    turn_based = False

    def __init__(self, env: gymnasium.Env, options: AdapterOptions = NO_OPTIONS) -> None:
        """Adapt ``env`` with its wrappers.

        Raises:
          ConfigError: its spaces are no Tuples of equal length, or an item is not supported.
        """
        observation, action = env.observation_space, env.action_space
        if not (isinstance(observation, spaces.Tuple) and isinstance(action, spaces.Tuple)) or (
            len(observation) != len(action)
        ):
            raise ConfigError(
                "env.agents: tuple expects an observation space and an action space that are Tuples of equal length, "
                f"found {observation} and {action}"
            )
        super().__init__(env)
        declares = declares_mask(env)
        self._adapters = [
            EntityAdapter(f"entity_{i}", *pair, options, declares_mask=declares)
            for i, pair in enumerate(zip(observation, action, strict=True))
        ]
        self.entities: tuple[EntitySpaces, ...] = tuple(adapter.spaces for adapter in self._adapters)
        check_spaces(self.entities)
        declared = env.get_wrapper_attr("state_space") if env.has_wrapper_attr("state_space") else None
        self._state = StateReader(declared if env.has_wrapper_attr("state") else None)
        self.state_space = self._state.space
        self._idle = [zeros(adapter.spaces.action) for adapter in self._adapters]
        self._all_allowed = tuple(adapter.all_allowed for adapter in self._adapters)
        self._everybody, self._nobody = (True,) * len(self._adapters), (False,) * len(self._adapters)
        self._acting: tuple[bool, ...] = self._everybody
        self._checked = self._checked_step = False
        self._warns = options.warns_of_masks(self.entities)

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Start an episode. The form of the first observations is checked against the spaces.

        Raises:
          ContractError: ``reset`` does not accept or return what Gymnasium prescribes.
        """
        returned = call_reset(self.env, seed, options)
        check_reset(self.env, returned, "gymnasium")
        observations, info = returned
        self._check_length("observations", observations, self.env.reset)
        if not self._checked:
            for adapter, observation in zip(self._adapters, observations, strict=True):
                adapter.check(observation)
            if self._warns and flags_in(info) is not None:
                warn_of_mask(self.env)
            self._checked = True
        self._acting = self._everybody
        rewards = (0.0,) * len(self._adapters)
        return self._timestep(observations, rewards, self._nobody, self._nobody, info)

    def step(self, actions: Sequence) -> Timestep:
        """Step once with a tuple of actions, one per entity.

        Raises:
          ContractError: ``step`` does not return what Gymnasium prescribes, with an item for each entity.
        """
        acted = self._acting
        chosen = [
            adapter.copy_action(actions[i]) if acted[i] else self._idle[i] for i, adapter in enumerate(self._adapters)
        ]
        returned = self.env.step(tuple(chosen))
        if not self._checked_step:
            check_step(self.env, returned, "gymnasium")
            self._checked_step = True
        observations, reward, terminated, truncated, info = returned
        self._check_length("observations", observations, self.env.step)
        rewards = self._rewards(reward)
        ended, cut = self._flags(terminated, "terminated"), self._flags(truncated, "truncated")
        if ended is self._nobody and cut is self._nobody and acted is self._everybody:
            return self._timestep(observations, rewards, ended, cut, info)
        self._acting = tuple([a and not (t or c) for a, t, c in zip(acted, ended, cut, strict=True)])
        return self._timestep(
            observations,
            [reward if a else 0.0 for a, reward in zip(acted, rewards, strict=True)],
            tuple([a and t for a, t in zip(acted, ended, strict=True)]),
            tuple([a and c for a, c in zip(acted, cut, strict=True)]),
            info,
        )

    def _rewards(self, reward: Any) -> Sequence[float]:
        if np.ndim(reward) == 0:
            return (number_of(reward, self.env),) * len(self._adapters)
        self._check_length("rewards", reward, self.env.step)
        return [float(each) for each in reward]

    def _flags(self, flags: Any, subject: str) -> tuple[bool, ...]:
        """Return a flag for each entity, by identity one of the two constants if there is one flag for all."""
        if np.ndim(flags) == 0:
            return self._everybody if flags else self._nobody
        self._check_length(f"flags {subject}", flags, self.env.step)
        listed = tuple([bool(flag) for flag in flags])
        return listed if any(listed) else self._nobody

    def _check_length(self, subject: str, items: Any, method: Any) -> None:
        if not isinstance(items, (list, tuple, np.ndarray)) or len(items) != len(self._adapters):
            raise ContractError(
                f"must return {len(self._adapters)} {subject}, one for each agent; found {describe(items)}"
                f"{source_of(getattr(self.env.unwrapped, method.__name__))}"
            )

    def _timestep(
        self,
        observations: Sequence,
        rewards: Sequence[float],
        terminated: tuple[bool, ...],
        truncated: tuple[bool, ...],
        info: Mapping[str, Any],
    ) -> Timestep:
        over = True not in self._acting
        masks: Sequence[np.ndarray | None] = self._all_allowed
        if not over and any(mask is not None for mask in masks):
            flags = flags_in(info)
            masks = [
                adapter.mask(observations[i], {} if flags is None else {MASK_KEY: flags[i]})
                if self._acting[i]
                else adapter.all_allowed
                for i, adapter in enumerate(self._adapters)
            ]
        observed = [
            adapter.observe(observation) for adapter, observation in zip(self._adapters, observations, strict=True)
        ]
        # Each entity gets a dict of its own, so that additions to one stay there.
        infos = [dict(info) for _ in self._adapters]
        return Timestep(tuple(observed), rewards, terminated, truncated, infos, self._acting, masks, over)

    def state(self) -> Any:
        """Return the global state; see ``StatefulEnvironment``."""
        return self._state.read(self.env.get_wrapper_attr("state")())
