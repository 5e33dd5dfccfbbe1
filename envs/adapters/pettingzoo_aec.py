"""Adapter of a PettingZoo AEC environment: agents act one at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from arena.common.errors import ContractError
from arena.common.user_code import source_of
from arena.envs.adapters.breach import call_reset, describe, number_of
from arena.envs.adapters.pettingzoo_entities import entity_adapters
from arena.envs.adapters.wrapped import Wrapped
from arena.envs.global_state import StateReader
from arena.envs.interface import EntitySpaces, Timestep
from arena.envs.options import NO_OPTIONS, AdapterOptions


class AECEnvironment(Wrapped):
    """An AEC environment, in which one step is one move of the agent that acts.

    The values of ``env.last()`` for an agent (observation, reward since its last action, terminated, truncated, info)
    are delivered in the step in which it acts or is done. The steps with None by which PettingZoo removes done agents
    happen inside. Only agents that act or are done are observed after the reset: the others keep their last
    observation. Masks are those of PettingZoo; an entity that does not act has every action allowed. The global state
    is that of ``state()``, if the environment has a ``state_space``.
    """

    turn_based = True

    def __init__(self, env: Any, options: AdapterOptions = NO_OPTIONS) -> None:
        """Adapt ``env``, a ``pettingzoo.AECEnv``.

        Raises:
          ConfigError: it does not define ``possible_agents``, or its spaces are not supported.
        """
        super().__init__(env)
        agents, self._adapters = entity_adapters(env, options)
        self._index = {agent: i for i, agent in enumerate(agents)}
        self.entities: tuple[EntitySpaces, ...] = tuple(adapter.spaces for adapter in self._adapters)
        self._state = StateReader(getattr(env, "state_space", None))
        self.state_space = self._state.space
        self._all_allowed = tuple(adapter.all_allowed for adapter in self._adapters)
        self._unchecked = set(agents)

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Start an episode. Every agent that is present is observed once.

        Raises:
          ContractError: ``reset`` does not accept what PettingZoo prescribes.
        """
        call_reset(self.env, seed, options)
        self._observations = [adapter.blank for adapter in self._adapters]
        self._alive: set[Any] = set()
        self._done: set[Any] = set()
        for agent in list(self.env.agents):
            self._see(agent, self.env.observe(agent))
        return self._next_turn()

    def step(self, actions: Sequence) -> Timestep:
        """Apply the action of the agent that acts; the other actions are ignored."""
        self.env.step(self._adapters[self._actor].copy_action(actions[self._actor]))
        return self._next_turn()

    def _next_turn(self) -> Timestep:
        """Remove done agents up to the agent that acts next, and return the timestep."""
        env, count = self.env, len(self._adapters)
        rewards = [0.0] * count
        terminated, truncated = [False] * count, [False] * count
        infos: list[dict] = [{} for _ in range(count)]
        acting = [False] * count
        masks: Sequence[np.ndarray | None] = self._all_allowed
        over = True
        while env.agents:
            agent = env.agent_selection
            observation, reward, ends, cut, info = self._last()
            i = self._see(agent, observation)
            rewards[i] = number_of(reward, env)
            infos[i] = info
            if not (ends or cut):
                self._actor = i
                acting[i] = True
                if masks[i] is not None and observation is not None:
                    masks = [*masks[:i], self._adapters[i].mask(observation, info), *masks[i + 1 :]]
                over = False
                break
            if agent in self._done:
                raise RuntimeError(f"agent {agent!r} is done and was stepped with None, but is still in env.agents")
            terminated[i], truncated[i] = bool(ends), bool(cut)
            self._alive.discard(agent)
            self._done.add(agent)
            env.step(None)
        for agent in self._alive.difference(env.agents):
            i = self._index[agent]
            rewards[i], terminated[i], truncated[i] = self._final_step(agent)
        return Timestep(tuple(self._observations), rewards, terminated, truncated, infos, acting, masks, over)

    def _last(self) -> tuple[Any, Any, bool, bool, dict]:
        returned = self.env.last()
        if not isinstance(returned, tuple) or len(returned) != 5:
            raise ContractError(
                "must let last() return (observation, reward, terminated, truncated, info), as in PettingZoo since "
                f"1.22; found {describe(returned)}{source_of(self.env.unwrapped.last)}"
            )
        return returned

    def _final_step(self, agent: Any) -> tuple[float, bool, bool]:
        """Return reward, terminated and truncated of an agent that was removed before it could act again.

        It counts as truncated unless the environment reports a termination.
        """
        self._alive.discard(agent)
        self._done.add(agent)
        reward = getattr(self.env, "_cumulative_rewards", {}).get(agent, 0.0)
        ends, cut = bool(self.env.terminations.get(agent)), bool(self.env.truncations.get(agent))
        return number_of(reward, self.env), ends, cut or not ends

    def _see(self, agent: Any, observation: Any) -> int:
        """Store the observation of an agent, if there is one; return the agent's index."""
        if agent not in self._index:
            raise ValueError(f"agent {agent!r} is not among possible_agents {list(self._index)}")
        i = self._index[agent]
        if agent not in self._done:
            self._alive.add(agent)
        if observation is not None:
            if agent in self._unchecked:
                self._adapters[i].check(observation)
                self._unchecked.discard(agent)
            self._observations[i] = self._adapters[i].observe(observation)
        return i

    def state(self) -> Any:
        """Return the global state; see ``StatefulEnvironment``."""
        return self._state.read(self.env.state())
