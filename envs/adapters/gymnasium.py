"""Adapter of a Gymnasium environment to an environment with one entity."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, SupportsFloat

import gymnasium
import numpy as np

from arena.common.errors import ContractError
from arena.envs.adapters.breach import (
    call_reset,
    check_reset,
    check_step,
    number_of,
    raise_step_error,
    warn_of_mask,
)
from arena.envs.adapters.wrapped import Wrapped
from arena.envs.global_state import StateReader
from arena.envs.interface import EntitySpaces, Timestep
from arena.envs.options import NO_OPTIONS, AdapterOptions
from arena.envs.spaces import EntityAdapter, as_mask, declares_mask, flags_in

# Parts of a timestep that are equal in almost every step: shared, so that a step allocates next to nothing.
YES, NO = (True,), (False,)


class GymnasiumEnvironment(Wrapped):
    """One entity, named ``entity_0``, that acts in every step.

    Its action mask, if any, comes from the method ``action_masks()`` of the environment or of one of its wrappers
    (the convention of sb3-contrib), from ``action_mask`` in a Dict observation, or from ``info["action_mask"]`` where
    the environment's metadata has ``"action_mask": True`` or the configuration ``env.action_mask: info``. The global
    state comes from ``info["state"]``, if the environment or one of its wrappers has a ``state_space``.

    Attributes:
      native_step: see ``NativeEnvironment``; None with action masks.
    """

    turn_based = False

    def __init__(self, env: gymnasium.Env, options: AdapterOptions = NO_OPTIONS) -> None:
        """Adapt ``env`` with its wrappers.

        Raises:
          ConfigError: its spaces are not supported.
        """
        has_method = options.action_mask == "auto" and env.has_wrapper_attr("action_masks")
        declares = has_method or declares_mask(env)
        adapter = EntityAdapter("entity_0", env.observation_space, env.action_space, options, declares_mask=declares)
        super().__init__(env)
        self.entities: tuple[EntitySpaces, ...] = (adapter.spaces,)
        self._warns = options.warns_of_masks(self.entities)
        self._adapter = adapter
        self._step = env.step
        self._observe = adapter.observe
        self._copy_action = adapter.copy_action
        self.native_step = self._native() if adapter.all_allowed is None else None
        self._no_masks = None if adapter.all_allowed is not None else (None,)
        self._all_allowed = (adapter.all_allowed,)
        self._ask_mask = env.get_wrapper_attr("action_masks") if has_method else None
        declared = env.get_wrapper_attr("state_space") if env.has_wrapper_attr("state_space") else None
        self._state = StateReader(declared)
        self.state_space = self._state.space
        self._info: dict[str, Any] = {}
        self._checked = self._checked_step = False

    def _native(self) -> Callable[[Any], tuple[Any, SupportsFloat, bool, bool, dict]]:
        step, copy_action = self._step, self._copy_action
        if isinstance(self.entities[0].action, gymnasium.spaces.Discrete):
            return step  # NumPy scalars are immutable
        return lambda action: step(copy_action(action))

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Start an episode. The form of the first observation is checked against its space.

        Raises:
          ContractError: ``reset`` does not accept or return what Gymnasium prescribes.
        """
        returned = call_reset(self.env, seed, options)
        check_reset(self.env, returned, "gymnasium")
        observation, info = returned
        self._info = info
        if not self._checked:
            self._adapter.check(observation)
            if self._warns and flags_in(info) is not None:
                warn_of_mask(self.env)
            self._checked = True
        masks = self._no_masks or self._masks(observation, info)
        return Timestep((self._observe(observation),), (0.0,), NO, NO, (info,), YES, masks, False)

    def step(self, actions: Sequence) -> Timestep:
        """Step once with ``actions[0]``.

        Raises:
          ContractError: ``step`` does not return what Gymnasium prescribes.
        """
        returned = self._step(self._copy_action(actions[0]))
        try:
            observation, reward, terminated, truncated, info = returned
        except (TypeError, ValueError) as error:
            raise_step_error(self.env, returned, error)
        return self.timestep_of(observation, reward, terminated, truncated, info)

    def timestep_of(
        self, observation: object, reward: SupportsFloat, terminated: bool, truncated: bool, info: dict
    ) -> Timestep:
        """Return the timestep for a result of Gymnasium's ``step``.

        Raises:
          ContractError: the reward is not a number; at the first call, also if info is not a dict.
        """
        if not self._checked_step:
            check_step(self.env, (observation, reward, terminated, truncated, info), "gymnasium")
            self._checked_step = True
        self._info = info
        try:
            paid = float(reward)
        except TypeError:
            paid = number_of(reward, self.env)
        if terminated or truncated:
            ended = (bool(terminated),), (bool(truncated),)
            return Timestep((self._observe(observation),), (paid,), *ended, (info,), NO, self._all_allowed, True)
        masks = self._no_masks or self._masks(observation, info)
        # equals Timestep(...), in a third of the time
        fields = (self._observe(observation),), (paid,), NO, NO, (info,), YES, masks, False
        return tuple.__new__(Timestep, fields)

    def number_of(self, reward: Any) -> float:
        """Return the number in a reward that ``float`` does not accept; ContractError if there is none."""
        return number_of(reward, self.env)

    def raise_step_error(self, returned: Any, error: Exception) -> NoReturn:
        """Raise a ContractError for a result of ``step`` that does not have five parts."""
        raise_step_error(self.env, returned, error)

    def _masks(self, observation: object, info: dict) -> tuple[np.ndarray | None]:
        if self._ask_mask is None:
            return (self._adapter.mask(observation, info),)
        return (as_mask(self._ask_mask(), self.entities[0].mask_size, self.entities[0].name),)

    def state(self) -> Any:
        """Return the global state of the latest ``info``; see ``StatefulEnvironment``.

        Raises:
          ContractError: the info has none.
        """
        if "state" not in self._info:
            raise ContractError(
                'must put the global state into info["state"] in each reset and step, since it has a state_space; '
                f"found an info with {', '.join(map(repr, self._info)) or 'nothing'}"
            )
        return self._state.read(self._info["state"])
