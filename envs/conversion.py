"""Conversion of environments of dm_env and of old Gym to Gymnasium or PettingZoo, by the package Shimmy."""

import contextlib
import importlib
import inspect
import sys
from typing import Any

import gymnasium
import numpy as np

from arena.common.errors import ConfigError
from arena.common.registry import packages_for
from arena.common.text import suggestion


def convert(native: Any, render: bool) -> Any:
    """Return an environment of dm_env or old Gym as one of Gymnasium or PettingZoo; any other as it is.

    Args:
      native: the object that the package gives.
      render: whether to request RGB frames, if the environment can render them.

    Raises:
      ConfigError: Shimmy is missing, or a space has no counterpart.
    """
    if _is_a(native, "dm_env", "Environment"):
        kind, function = "a dm_env.Environment", _from_dm_env
    elif _is_a(native, "gym", "Env") and not isinstance(native, gymnasium.Env):
        kind, function = "an environment of the package gym", _from_gym
    else:
        return native
    with packages_for(kind):
        try:
            return function(native, "rgb_array" if render else None)
        except (NotImplementedError, TypeError) as error:  # Shimmy's, for a spec or a space
            raise ConfigError(f"{kind} cannot be converted: {error}") from error


def load_dm_control(use: str, name: str, settings: dict[str, Any]) -> Any:
    """Return the task of dm_control's suite that ``<domain>-<task>`` names.

    Raises:
      ConfigError: there is none, or dm_control is missing.
    """
    with packages_for(repr(use)):
        suite = importlib.import_module("dm_control.suite")
    domain, _, task = name.partition("-")
    if (domain, task) not in suite.ALL_TASKS:
        known = [f"dm_control:{domain}-{task}" for domain, task in suite.ALL_TASKS]
        raise ConfigError(
            f"unknown environment {use!r}{suggestion(use, known)}; expected a domain and a task of dm_control's suite, "
            "such as dm_control:cartpole-swingup"
        )
    return suite.load(domain, task, **settings)


def _is_a(native: Any, package: str, name: str) -> bool:
    """Return whether an object is of a class of a package, which is not imported for it."""
    kind = getattr(sys.modules.get(package), name, None)
    return isinstance(kind, type) and isinstance(native, kind)


def _from_dm_env(native: Any, render_mode: str | None) -> Any:
    import shimmy

    if isinstance(native.action_spec(), list | tuple):
        if _is_a(native, "meltingpot.utils.substrates.substrate", "Substrate"):
            return shimmy.MeltingPotCompatibilityV0(native, render_mode=render_mode)
        return shimmy.DmControlMultiAgentCompatibilityV0(native, render_mode=None)
    if _is_a(getattr(native, "raw_env", native), "bsuite.environments", "Environment"):
        return shimmy.BSuiteCompatibilityV0(native)
    if "dm_control" in sys.modules:
        with contextlib.suppress(AttributeError):  # no environment of dm_control's
            return shimmy.DmControlCompatibilityV0(native, render_mode=render_mode)
    return DmEnvironment(native)


def _from_gym(native: Any, render_mode: str | None) -> gymnasium.Env:
    import shimmy

    if not hasattr(np, "bool8"):
        np.bool8 = np.bool_  # type: ignore[attr-defined]  # gym's checker reads this name, which NumPy 2 has not
    parameters = inspect.signature(native.unwrapped.reset).parameters
    if "seed" in parameters and "return_info" not in parameters:
        return shimmy.GymV26CompatibilityV0(env=native)
    return shimmy.GymV21CompatibilityV0(
        env=native, render_mode=render_mode
    )  # until 0.25, reset returns no info, and step four parts


class DmEnvironment(gymnasium.Env):
    """Any other environment of dm_env. Its last timestep is a termination with a discount of 0, else a truncation."""

    def __init__(self, env: Any) -> None:
        """Wrap ``env``.

        Raises:
          NotImplementedError: a spec has no counterpart among Gymnasium's spaces.
        """
        from shimmy.utils.dm_env import dm_env_step2gym_step, dm_spec2gym_space

        self._env, self._convert = env, dm_env_step2gym_step
        self.observation_space = dm_spec2gym_space(env.observation_spec())
        self.action_space = dm_spec2gym_space(env.action_spec())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; the seed goes to a method ``seed``, if there is one."""
        super().reset(seed=seed)
        if seed is not None and callable(getattr(self._env, "seed", None)):
            self._env.seed(seed)
        observation, *_, info = self._convert(self._env.reset())
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step once."""
        return self._convert(self._env.step(action))

    def close(self) -> None:
        """Close the environment."""
        self._env.close()
