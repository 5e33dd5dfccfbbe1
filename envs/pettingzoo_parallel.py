"""A PettingZoo Parallel environment: all agents that are present act in every step."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arena.envs.breach import call_reset, check_reset, check_step, number_of
from arena.envs.interface import EntitySpaces, Timestep
from arena.envs.pettingzoo_entities import entity_adapters
from arena.envs.rendering import rgb_array


class ParallelEnvironment:
    """The entities are ``possible_agents``, in that order, also those that are absent.

    An agent that is not there yet observes zeros and does not act; one that is done keeps its last observation. An
    agent that leaves without being said to be terminated or truncated counts as truncated: nothing says that the game
    ended for it. Action masks come from ``action_mask`` in a Dict observation, or from ``infos[agent]["action_mask"]``
    where the environment's metadata has ``"action_mask": True``.
    """

    turn_based = False

    def __init__(self, env: Any) -> None:
        """Adapt ``env``, a ``pettingzoo.ParallelEnv``.

        Raises:
          ConfigError: it does not know its ``possible_agents``, or its spaces are not supported.
        """
        self.env = env
        self._agents, self._ports = entity_adapters(env)
        self._known = frozenset(self._agents)
        self.entities: tuple[EntitySpaces, ...] = tuple(port.spaces for port in self._ports)
        self._no_rewards = (0.0,) * len(self._agents)
        self._nobody = (False,) * len(self._agents)
        self._unchecked = set(self._agents)
        self._checked_step = False
        self._closed = False

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Start an episode. The form of each agent's first observation ever is checked against its space.

        Raises:
          ContractError: ``reset`` does not accept or return what PettingZoo prescribes.
        """
        returned = call_reset(self.env, seed, options)
        check_reset(self.env, returned, "parallel")
        observations, infos = returned
        self._done: set[Any] = set()
        self._observations = [port.blank for port in self._ports]
        self._acting = self._present()
        masks = self._receive(observations, infos)
        given = tuple([infos.get(agent) or {} for agent in self._agents])
        over = True not in self._acting
        return Timestep(
            tuple(self._observations), self._no_rewards, self._nobody, self._nobody, given, self._acting, masks, over
        )

    def step(self, actions: Sequence) -> Timestep:
        """Step once with the actions of the agents that act.

        Raises:
          ContractError: ``step`` does not return what PettingZoo prescribes.
        """
        agents, acted = self._agents, self._acting
        returned = self.env.step(
            {agents[i]: self._ports[i].copy_action(actions[i]) for i, acts in enumerate(acted) if acts}
        )
        if not self._checked_step:
            check_step(self.env, returned, "parallel")
            self._checked_step = True
        observations, given, terminations, truncations, infos = returned
        present = set(self.env.agents)
        rewards = [0.0] * len(agents)
        terminated, truncated = [False] * len(agents), [False] * len(agents)
        for i, agent in enumerate(agents):
            if not acted[i]:
                continue
            try:
                rewards[i] = float(given.get(agent, 0.0))
            except TypeError:
                rewards[i] = number_of(given[agent], self.env)
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
        """Return who acts next."""
        present = self.env.agents
        if not self._known.issuperset(present):
            strangers = set(present) - self._known
            raise ValueError(f"agents {sorted(strangers)} are not among possible_agents {self._agents}")
        return tuple([agent in present and agent not in self._done for agent in self._agents])

    def _receive(self, observations: Mapping, infos: Mapping) -> list[np.ndarray | None]:
        """Take in the observations that came; return the masks."""
        masks = [port.all_allowed for port in self._ports]
        for i, agent in enumerate(self._agents):
            observation = observations.get(agent)
            if observation is None:
                continue
            port = self._ports[i]
            if agent in self._unchecked:
                port.check(observation)
                self._unchecked.discard(agent)
            self._observations[i] = port.observe(observation)
            if self._acting[i]:
                masks[i] = port.mask(observation, infos.get(agent) or {})
        return masks

    def render(self) -> np.ndarray | None:
        """Return an RGB array, or None unless the environment was made with ``render_mode="rgb_array"``."""
        return rgb_array(self.env)

    def close(self) -> None:
        """Close the environment, once."""
        if not self._closed:
            self._closed = True
            self.env.close()
