"""Adapter of pymarl's ``MultiAgentEnv`` (SMAC, SMACv2, SMAClite, Google Research Football), by its methods."""

import inspect
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common.errors import ConfigError, ContractError
from arena.common.user_code import source_of
from arena.envs.adapters.breach import describe, number_of
from arena.envs.adapters.wrapped import Wrapped
from arena.envs.global_state import StateReader
from arena.envs.interface import EntitySpaces, Timestep
from arena.envs.options import NO_OPTIONS, AdapterOptions
from arena.envs.spaces import EntityAdapter

METHODS = ("get_env_info", "get_obs", "get_avail_actions", "step", "reset")


def is_pymarl(env: Any, options: AdapterOptions = NO_OPTIONS) -> bool:
    """Return whether an environment has the methods of pymarl's ``MultiAgentEnv``."""
    return options.agents == "auto" and all(callable(getattr(env, name, None)) for name in METHODS)


class PymarlEnvironment(Wrapped):
    """A cooperative environment with entities ``agent_0``, ``agent_1``, ..., which act together.

    Each gets the reward of the team. Masks are those of ``get_avail_actions``; an agent that is dead has its action for
    doing nothing. The global state is that of ``get_state``. ``info["episode_limit"]`` means truncated, as do results
    of five parts that state it. The numbers of the last info are the metrics of the episode, and ``battle_won`` its
    outcome.
    """

    turn_based = False

    def __init__(self, env: Any, options: AdapterOptions = NO_OPTIONS) -> None:
        """Adapt ``env``.

        Raises:
          ConfigError: ``get_env_info`` lacks a size.
        """
        super().__init__(env)
        about = env.get_env_info()
        missing = {"n_agents", "n_actions", "obs_shape"} - about.keys()
        if missing:
            raise ConfigError(f"expected {', '.join(sorted(missing))} in get_env_info(), found {', '.join(about)}")
        observation, action = _box(about["obs_shape"]), spaces.Discrete(int(about["n_actions"]))
        self._adapters = [
            EntityAdapter(f"agent_{i}", observation, action, options, declares_mask=True)
            for i in range(int(about["n_agents"]))
        ]
        self.entities: tuple[EntitySpaces, ...] = tuple(adapter.spaces for adapter in self._adapters)
        has_state = callable(getattr(env, "get_state", None)) and about.get("state_shape")
        self._state = StateReader(_box(about["state_shape"]) if has_state else None)
        self.state_space = self._state.space
        count = len(self._adapters)
        self._everybody, self._nobody = (True,) * count, (False,) * count
        self._all_allowed = tuple(adapter.all_allowed for adapter in self._adapters)
        parameters = inspect.signature(env.reset).parameters
        self._takes_seed = "seed" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self._checked = False

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Start an episode; the seed is passed on if ``reset`` takes one."""
        if self._takes_seed:
            self.env.reset(seed=seed)
        else:
            self.env.reset()
        observations = self.env.get_obs()
        if not self._checked:
            if len(observations) != len(self._adapters):
                raise ContractError(
                    f"must return {len(self._adapters)} observations, one for each agent; found "
                    f"{describe(observations)}{source_of(self.env.get_obs)}"
                )
            for adapter, observation in zip(self._adapters, observations, strict=True):
                adapter.check(observation)
            self._checked = True
        return self._timestep(observations, 0.0, self._nobody, self._nobody, {}, False)

    def step(self, actions: Sequence) -> Timestep:
        """Step once with a list of actions.

        Raises:
          ContractError: ``step`` returns neither (reward, terminated, info) nor the five parts of EPyMARL.
        """
        returned = self.env.step([int(action) for action in actions])
        if not isinstance(returned, tuple) or len(returned) not in (3, 5) or not isinstance(returned[-1], Mapping):
            raise ContractError(
                "must return (reward, terminated, info), or (observations, reward, terminated, truncated, info); found "
                f"{describe(returned)}{source_of(self.env.step)}"
            )
        *_, info = returned
        reward, ended, cut = (*returned[:2], False) if len(returned) == 3 else returned[1:4]
        paid = float(np.mean(reward)) if np.ndim(reward) else number_of(reward, self.env)
        ended, cut = bool(np.all(ended)), bool(np.all(cut))
        if ended and info.get("episode_limit"):
            ended, cut = False, True
        over = ended or cut
        told = {**info, **_results(info)} if over else dict(info)
        everybody, nobody = self._everybody, self._nobody
        flags = (everybody if ended else nobody), (everybody if cut else nobody)
        return self._timestep(self.env.get_obs(), paid, *flags, told, over)

    def _timestep(
        self,
        observations: Sequence,
        reward: float,
        terminated: tuple[bool, ...],
        truncated: tuple[bool, ...],
        info: dict[str, Any],
        over: bool,
    ) -> Timestep:
        masks: Sequence[np.ndarray | None] = self._all_allowed
        if not over and self._all_allowed[0] is not None:
            flags = self.env.get_avail_actions()
            masks = [adapter.mask_of(flags[i]) for i, adapter in enumerate(self._adapters)]
        observed = [adapter.observe(observations[i]) for i, adapter in enumerate(self._adapters)]
        rewards, infos = (reward,) * len(observed), [dict(info) for _ in observed]
        acting = self._nobody if over else self._everybody
        return Timestep(tuple(observed), rewards, terminated, truncated, infos, acting, masks, over)

    def state(self) -> Any:
        """Return the global state; see ``StatefulEnvironment``."""
        return self._state.read(self.env.get_state())


def _box(shape: Any) -> spaces.Box:
    shape = tuple(shape) if isinstance(shape, Sequence) else (int(shape),)
    return spaces.Box(-np.inf, np.inf, shape, np.float32)


def _results(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics and outcome of an episode by the numbers of its last info."""
    numbers = {name: float(value) for name, value in info.items() if isinstance(value, Real)}
    numbers.pop("episode_limit", None)
    results: dict[str, Any] = {"metrics": {**numbers, **info.get("metrics", {})}} if numbers else {}
    if "battle_won" in info and "outcome" not in info:
        results["outcome"] = "win" if info["battle_won"] else "loss"
    return results
