"""Adapter of a PettingZoo Parallel environment: all agents that are present act in every step."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arena.envs.adapters.breach import call_reset, check_reset, check_step, number_of, warn_of_mask
from arena.envs.adapters.pettingzoo_entities import entity_adapters
from arena.envs.adapters.wrapped import Wrapped
from arena.envs.global_state import StateReader
from arena.envs.interface import EntitySpaces, Timestep
from arena.envs.options import NO_OPTIONS, AdapterOptions
from arena.envs.spaces import flags_in


class ParallelEnvironment(Wrapped):
    """A Parallel environment; its entities are ``possible_agents``, in that order, including absent ones.

    An agent that is absent before its first observation observes zeros and does not act; a done agent keeps its last
    observation. An agent that is removed without termination or truncation counts as truncated. Action masks come from
    ``action_mask`` in a Dict observation, or from ``infos[agent]["action_mask"]`` if the environment's metadata has
    ``"action_mask": True``. The global state is that of ``state()``, if the environment has a ``state_space``.
    """

    turn_based = False

    def __init__(self, env: Any, options: AdapterOptions = NO_OPTIONS) -> None:
        """Adapt ``env``, a ``pettingzoo.ParallelEnv``.

        Raises:
          ConfigError: it does not define ``possible_agents``, or its spaces are not supported.
        """
        super().__init__(env)
        self._agents, self._adapters = entity_adapters(env, options)
        self._known = frozenset(self._agents)
        self.entities: tuple[EntitySpaces, ...] = tuple(adapter.spaces for adapter in self._adapters)
        self._state = StateReader(getattr(env, "state_space", None))
        self.state_space = self._state.space
        self._no_rewards = (0.0,) * len(self._agents)
        self._none = (False,) * len(self._agents)
        self._unchecked = set(self._agents)
        self._checked_step = False
        self._warns = options.warns_of_masks(self.entities)

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Start an episode. The form of each agent's first observation is checked against its space.

        Raises:
          ContractError: ``reset`` does not accept or return what PettingZoo prescribes.
        """
        returned = call_reset(self.env, seed, options)
        check_reset(self.env, returned, "parallel")
        observations, infos = returned
        self._done: set[Any] = set()
        self._observations = [adapter.blank for adapter in self._adapters]
        self._acting = self._present()
        masks = self._receive(observations, infos)
        if self._warns and any(flags_in(info or {}) is not None for info in infos.values()):
            warn_of_mask(self.env)
        self._warns = False
        agent_infos = tuple([infos.get(agent) or {} for agent in self._agents])
        over = True not in self._acting
        return Timestep(
            tuple(self._observations), self._no_rewards, self._none, self._none, agent_infos, self._acting, masks, over
        )

    def step(self, actions: Sequence) -> Timestep:
        """Step once with the actions of the agents that act.

        Raises:
          ContractError: ``step`` does not return what PettingZoo prescribes.
        """
        agents, acted = self._agents, self._acting
        returned = self.env.step(
            {agents[i]: self._adapters[i].copy_action(actions[i]) for i, acts in enumerate(acted) if acts}
        )
        if not self._checked_step:
            check_step(self.env, returned, "parallel")
            self._checked_step = True
        observations, agent_rewards, terminations, truncations, infos = returned
        present = set(self.env.agents)
        rewards = [0.0] * len(agents)
        terminated, truncated = [False] * len(agents), [False] * len(agents)
        for i, agent in enumerate(agents):
            if not acted[i]:
                continue
            try:
                rewards[i] = float(agent_rewards.get(agent, 0.0))
            except TypeError:
                rewards[i] = number_of(agent_rewards[agent], self.env)
            ends, cut = bool(terminations.get(agent)), bool(truncations.get(agent))
            if ends or cut or agent not in present:
                terminated[i], truncated[i] = ends, cut or not ends
                self._done.add(agent)
        self._acting = self._present()
        masks = self._receive(observations, infos)
        over = True not in self._acting
        return Timestep(
            tuple(self._observations),
            rewards,
            tuple(terminated),
            tuple(truncated),
            tuple([infos.get(agent) or {} for agent in agents]),
            self._acting,
            masks,
            over,
        )

    def _present(self) -> tuple[bool, ...]:
        """Return whether each agent acts next."""
        present = self.env.agents
        if not self._known.issuperset(present):
            strangers = set(present) - self._known
            raise ValueError(f"agents {sorted(strangers)} are not among possible_agents {self._agents}")
        return tuple([agent in present and agent not in self._done for agent in self._agents])

    def _receive(self, observations: Mapping, infos: Mapping) -> list[np.ndarray | None]:
        """Store the observations that were returned; return the masks."""
        masks = [adapter.all_allowed for adapter in self._adapters]
        for i, agent in enumerate(self._agents):
            observation = observations.get(agent)
            if observation is None:
                continue
            adapter = self._adapters[i]
            if agent in self._unchecked:
                adapter.check(observation)
                self._unchecked.discard(agent)
            self._observations[i] = adapter.observe(observation)
            if self._acting[i]:
                masks[i] = adapter.mask(observation, infos.get(agent) or {})
        return masks

    def state(self) -> Any:
        """Return the global state; see ``StatefulEnvironment``."""
        return self._state.read(self.env.state())
