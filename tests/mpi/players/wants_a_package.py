"""Environments that cannot be made, or cannot be served."""

import gymnasium


def make():
    """Import a package that does not exist."""
    import a_package_that_is_not_there

    return a_package_that_is_not_there.make()


class Speaker(gymnasium.Env):
    """Acts by text, which has no fixed layout."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Text(8)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, 0.0, False, False, {}


def odd_space():
    """Make a Speaker."""
    return Speaker()
