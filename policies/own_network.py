"""Whole networks of users under ``ppo``: a policy and a value of one module."""

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces as gym_spaces

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces
from arena.policies.distributions.base import Distribution
from arena.policies.encoders.users import UserModule
from arena.policies.networks import ActorCritic, NetworkOutput, PolicyAndValue
from arena.policies.settings.networks import NetworkSettings


class OwnNetwork(PolicyAndValue):
    """A user's module as policy and value.

    It is called with the observation's space, the number of outputs, and its settings. Its ``forward(observations,
    starts, state)`` returns outputs ``[N, outputs]``, values ``[N]`` and the next recurrent state.

    Feed-forward modules get None for ``starts`` and ``state``, and return None. A recurrent one has an attribute
    ``state_shape``, (rows, width). It reads T time steps of L lanes, time first, as N = T L rows; ``starts`` is ``[T,
    L]``, ``state`` ``[L, rows, width]`` before the first step, and it returns the one after the last step.

    Attributes:
      own: the module.
    """

    has_central_critic = False

    def __init__(self, space: gym_spaces.Space, outputs: int, free: Sequence[float], settings: NetworkSettings) -> None:
        """Load and call the class; arguments as in ``ActorCritic``.

        Raises:
          ConfigError: it cannot be used.
        """
        super().__init__()
        assert settings.network is not None
        self.own = UserModule(settings.network, space, (outputs,), settings.network_settings, settings)
        shape = getattr(self.own.module, "state_shape", None) or (0, 0)
        if not (isinstance(shape, tuple | list) and len(shape) == 2 and all(isinstance(size, int) for size in shape)):
            raise ConfigError(
                f"{settings.network!r}: expected a state_shape of (rows, width) for a recurrent network, and none for "
                f"any other, found {shape!r}"
            )
        self.state_shape = shape[0], shape[1]
        self.policy_rows = shape[0]
        self._add_scales(free, settings)
        starts = torch.ones(1, 1, dtype=torch.bool) if self.is_recurrent else None
        self.own.make_parameters(space, starts, torch.zeros(1, *self.state_shape) if self.is_recurrent else None)

    def forward(
        self,
        observations: Any,
        starts: torch.Tensor | None = None,
        state: torch.Tensor | None = None,
        global_state: Any = None,
    ) -> NetworkOutput:
        """See ``PolicyAndValue``."""
        outputs, values, after = self.own(observations, starts, state)
        return NetworkOutput(outputs.contiguous(), values.contiguous(), None if after is None else after.detach())

    def policy(
        self, observations: Any, starts: torch.Tensor | None, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See ``PolicyAndValue``."""
        outputs, _, after = self(observations, starts, state)
        return outputs, after

    def policy_step(
        self, observations: Any, starts: torch.Tensor | None = None, state: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See ``PolicyAndValue``."""
        return self.policy(observations, None if starts is None else starts[None], state)

    @property
    def measuring_encoder(self) -> UserModule:
        """See ``PolicyAndValue``."""
        return self.own


def networks_of(spaces: EntitySpaces, distribution: Distribution, settings: NetworkSettings) -> PolicyAndValue:
    """Return the networks of ``ppo`` that the settings name."""
    outputs, free = distribution.outputs, distribution.parameters
    if settings.network is not None:
        return OwnNetwork(spaces.observation, outputs, free, settings)
    return ActorCritic(spaces.observation, outputs, free, settings, spaces.global_state)
