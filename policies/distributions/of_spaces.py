"""The distribution over an action space."""

from gymnasium import spaces as gym_spaces

from arena.envs.interface import EntitySpaces
from arena.policies.action_spaces import check_stochastic
from arena.policies.distributions.base import Distribution
from arena.policies.distributions.discrete import Bernoulli, Categorical
from arena.policies.distributions.gaussian import Gaussian
from arena.policies.distributions.joint import Joint


def distribution(spaces: EntitySpaces, log_std: float = 0.0) -> Distribution:
    """Return the distribution over an entity's action space.

    Args:
      spaces: spaces of the entity; its mask must fit its actions.
      log_std: initial log standard deviation of continuous actions.

    Raises:
      ConfigError: there is none for this space, or it does not support the mask.
    """
    check_stochastic(spaces)
    return _distribution(spaces.action, log_std)


def _distribution(space: gym_spaces.Space, log_std: float) -> Distribution:
    if isinstance(space, (gym_spaces.Discrete, gym_spaces.MultiDiscrete)):
        return Categorical(space)
    if isinstance(space, gym_spaces.MultiBinary):
        return Bernoulli(space)
    if isinstance(space, gym_spaces.Box):
        return Gaussian(space, log_std)
    if isinstance(space, gym_spaces.Tuple):
        return Joint([_distribution(sub, log_std) for sub in space.spaces], None)
    assert isinstance(space, gym_spaces.Dict)
    return Joint([_distribution(sub, log_std) for sub in space.spaces.values()], list(space.spaces))
