"""Adapter of RLlib's ``MultiAgentEnv``, by its methods and attributes: RLlib itself is not imported."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common.errors import ContractError
from arena.common.user_code import source_of
from arena.envs.adapters.breach import call_reset, check_reset, check_step, number_of, warn_of_mask
from arena.envs.adapters.wrapped import Wrapped
from arena.envs.global_state import StateReader
from arena.envs.interface import EntitySpaces, Timestep
from arena.envs.options import NO_OPTIONS, AdapterOptions
from arena.envs.spaces import EntityAdapter, check_spaces, declares_mask, flags_in

ALL, COMMON = "__all__", "__common__"

EMPTY_STEPS = 10_000
"""Largest number of steps in a row in which no agent acts."""


def is_rllib(env: Any, options: AdapterOptions = NO_OPTIONS) -> bool:
    """Return whether an environment is a ``MultiAgentEnv``: it lists its agents, and has spaces by agent."""
    if options.agents not in ("auto", "parallel") or not callable(getattr(env, "step", None)):
        return False
    agents = _agents(env)
    by_agent = [_spaces_by_agent(env, kind, agents) for kind in ("observation", "action")]
    return bool(agents) and None not in by_agent


class RLlibEnvironment(Wrapped):
    """A ``MultiAgentEnv``; its entities are all agents that may appear, in the environment's order.

    Only the agents in the returned observations act next. The rewards of an agent add up until it acts again or is
    done. ``__all__`` ends the episode for all, with the last observation of each; ``infos["__common__"]`` is part of
    each agent's info. While no agent is observed, the environment is stepped without actions. Action masks come from
    ``action_mask`` in a Dict observation, or from ``infos[agent]`` where the configuration has
    ``env.action_mask: info``.

    Attributes:
      turn_based: True, since the interface does not state which agents act together, unless the configuration has
        ``env.agents: parallel``.
    """

    def __init__(self, env: Any, options: AdapterOptions = NO_OPTIONS) -> None:
        """Adapt ``env``.

        Raises:
          ConfigError: an agent has no space, or one that is not supported.
        """
        super().__init__(env)
        self._agents = _agents(env)
        observed, acted = (_spaces_by_agent(env, kind, self._agents) for kind in ("observation", "action"))
        assert observed is not None and acted is not None
        declares = declares_mask(env)
        self._adapters = [
            EntityAdapter(str(agent), observed[agent], acted[agent], options, declares_mask=declares)
            for agent in self._agents
        ]
        self.entities: tuple[EntitySpaces, ...] = tuple(adapter.spaces for adapter in self._adapters)
        check_spaces(self.entities)
        self._index = {agent: i for i, agent in enumerate(self._agents)}
        self.turn_based = options.agents != "parallel"
        self._state = StateReader(getattr(env, "state_space", None))
        self.state_space = self._state.space
        self._unchecked = set(self._agents)
        self._checked_step = False
        self._warns = options.warns_of_masks(self.entities)

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Start an episode.

        Raises:
          ContractError: ``reset`` does not accept or return what RLlib prescribes.
        """
        returned = call_reset(self.env, seed, options)
        check_reset(self.env, returned, "parallel")
        observations, infos = returned
        count = len(self._agents)
        self._observations = [adapter.blank for adapter in self._adapters]
        self._appeared, self._done = [False] * count, [False] * count
        self._pending = [0.0] * count
        if self._warns and any(flags_in(info or {}) is not None for info in infos.values()):
            warn_of_mask(self.env)
        self._warns = False
        acting = self._receive(observations)
        timestep = self._timestep(acting, [False] * count, [False] * count, observations, infos, False)
        if not any(acting):
            timestep = self._go_on()._replace(rewards=[0.0] * count)
            if timestep.over:
                raise ContractError(
                    f"must observe an agent before the episode ends; found none{source_of(self.env.reset)}"
                )
        return timestep

    def step(self, actions: Sequence) -> Timestep:
        """Step once with the actions of the agents that act.

        Raises:
          ContractError: ``step`` does not return what RLlib prescribes.
        """
        chosen = {
            self._agents[i]: self._adapters[i].copy_action(actions[i]) for i, acts in enumerate(self._acting) if acts
        }
        timestep = self._step(chosen)
        return timestep if timestep.over or any(timestep.acting) else self._go_on(timestep)

    def _go_on(self, before: Timestep | None = None) -> Timestep:
        """Step without actions until an agent acts or the episode is over; agents that were done before stay so."""
        for _ in range(EMPTY_STEPS):
            timestep = self._step({})
            if before is not None:
                timestep = _joined(before, timestep)
            if timestep.over or any(timestep.acting):
                return timestep
            before = timestep
        raise ContractError(
            f"must observe an agent, or end the episode by {ALL!r}; found neither in {EMPTY_STEPS:,} steps"
            f"{source_of(self.env.step)}"
        )

    def _step(self, chosen: dict[Any, Any]) -> Timestep:
        returned = self.env.step(chosen)
        if not self._checked_step:
            check_step(self.env, returned, "parallel")
            self._checked_step = True
        observations, rewards, terminateds, truncateds, infos = returned
        for agent, reward in rewards.items():
            i = self._number(agent)
            if not self._done[i]:
                self._pending[i] += number_of(reward, self.env)
        all_end, all_cut = bool(terminateds.get(ALL)), bool(truncateds.get(ALL))
        count = len(self._agents)
        terminated, truncated = [False] * count, [False] * count
        ending = []
        for i, agent in enumerate(self._agents):
            ends, cut = bool(terminateds.get(agent)), bool(truncateds.get(agent))
            if self._done[i] or not (ends or cut or all_end or all_cut):
                continue
            ending.append(i)
            if self._appeared[i]:
                terminated[i], truncated[i] = (ends, cut) if ends or cut else (all_end, all_cut)
        acting = self._receive(observations, ending)
        for i in ending:
            self._done[i], acting[i] = True, False
        over = all_end or all_cut or all(self._done)
        if over:
            acting = [False] * count
        elif not self.turn_based:
            self._check_parallel(acting)
        return self._timestep(acting, terminated, truncated, observations, infos, over)

    def _receive(self, observations: Mapping, ending: Sequence[int] = ()) -> list[bool]:
        """Store the observations that were returned; return whether each agent acts next."""
        acting = [False] * len(self._agents)
        for agent, observation in observations.items():
            i = self._number(agent)
            if self._done[i] or observation is None:
                continue
            if agent in self._unchecked:
                self._adapters[i].check(observation)
                self._unchecked.discard(agent)
            self._observations[i] = self._adapters[i].observe(observation)
            acting[i] = True
            self._appeared[i] = self._appeared[i] or i not in ending
        return acting

    def _number(self, agent: Any) -> int:
        if agent not in self._index:
            listed = ", ".join(map(str, self._agents))
            raise ContractError(
                f"must list all agents that may appear in possible_agents; found {agent!r}, which is not among {listed}"
                f"{source_of(self.env.step)}"
            )
        return self._index[agent]

    def _check_parallel(self, acting: Sequence[bool]) -> None:
        for i, agent in enumerate(self._agents):
            if self._appeared[i] and not self._done[i] and not acting[i]:
                raise ContractError(
                    f"must observe each agent in each step until it is done, since env.agents is parallel; found "
                    f"nothing for {agent!r} (leave env.agents out if agents take turns){source_of(self.env.step)}"
                )

    def _timestep(
        self,
        acting: list[bool],
        terminated: Sequence[bool],
        truncated: Sequence[bool],
        observations: Mapping,
        infos: Mapping,
        over: bool,
    ) -> Timestep:
        self._acting = tuple(acting)
        common = infos.get(COMMON) or {}
        told = [{**common, **(infos.get(agent) or {})} for agent in self._agents]
        masks: list[np.ndarray | None] = [adapter.all_allowed for adapter in self._adapters]
        rewards = [0.0] * len(acting)
        for i, agent in enumerate(self._agents):
            if acting[i] or terminated[i] or truncated[i]:
                rewards[i], self._pending[i] = self._pending[i], 0.0
            if acting[i] and masks[i] is not None:
                masks[i] = self._adapters[i].mask(observations[agent], told[i])
        return Timestep(
            tuple(self._observations), rewards, tuple(terminated), tuple(truncated), told, self._acting, masks, over
        )

    def state(self) -> Any:
        """Return the global state; see ``StatefulEnvironment``."""
        return self._state.read(self.env.state())


def _joined(before: Timestep, after: Timestep) -> Timestep:
    """Return the later of two timesteps, between which no agent has acted, with the ends of both."""

    def either(first: Sequence[bool], second: Sequence[bool]) -> tuple[bool, ...]:
        return tuple([a or b for a, b in zip(first, second, strict=True)])

    return after._replace(
        rewards=[a + b for a, b in zip(before.rewards, after.rewards, strict=True)],
        terminated=either(before.terminated, after.terminated),
        truncated=either(before.truncated, after.truncated),
        infos=[{**a, **b} for a, b in zip(before.infos, after.infos, strict=True)],
    )


def _agents(env: Any) -> list[Any]:
    """Return the agents that may appear; an empty list if the environment does not name them."""
    for attribute in ("possible_agents", "get_agent_ids", "_agent_ids", "agents"):
        listed = getattr(env, attribute, None)
        if attribute == "get_agent_ids":
            listed = listed() if callable(listed) else None
        if isinstance(listed, set | frozenset):
            listed = sorted(listed, key=str)  # their order differs between processes
        if isinstance(listed, list | tuple) and listed:
            # Names: an environment of one agent may have a list of objects by this name.
            return list(listed) if all(isinstance(agent, Hashable) for agent in listed) else []
    return []


def _spaces_by_agent(env: Any, kind: str, agents: Sequence[Any]) -> Mapping[Any, spaces.Space] | None:
    """Return the spaces of all agents, None if the environment does not have them by agent.

    They are in ``observation_spaces``, or in an ``observation_space`` that is a Dict over the agents. In RLlib's older
    form it is one space that all agents have; then ``get_agent_ids`` shows that there are several agents.
    """
    several, one = getattr(env, f"{kind}_spaces", None), getattr(env, f"{kind}_space", None)
    for by_agent in (several, one):
        if isinstance(by_agent, Mapping | spaces.Dict) and all(agent in by_agent for agent in agents):
            return {agent: by_agent[agent] for agent in agents}
    if isinstance(one, spaces.Space) and callable(getattr(env, "get_agent_ids", None)):
        return dict.fromkeys(agents, one)
    return None
