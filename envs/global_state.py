"""The global state that a native environment declares."""

from typing import Any

from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.envs.spaces import mismatch, reader, unsupported


class StateReader:
    """Reader of the global state that a native environment declares by its ``state_space``.

    Attributes:
      space: the space; None if the environment declares none.
    """

    def __init__(self, declared: Any) -> None:
        """Prepare the conversion; ``declared`` is the attribute ``state_space`` of the environment, or None.

        Raises:
          ConfigError: the space is not supported.
        """
        self.space: spaces.Space | None = declared if isinstance(declared, spaces.Space) else None
        check_state_space(self.space)
        self._convert = None if self.space is None else reader(self.space)
        self._checked = False

    def read(self, state: Any) -> Any:
        """Return a state in the form of its space; the form of the first one is checked.

        Raises:
          ConfigError: it does not have the form.
        """
        assert self.space is not None and self._convert is not None
        if not self._checked:
            problem = mismatch(self.space, state)
            if problem:
                raise ConfigError(f"the environment returned a global state outside its state_space: {problem}")
            self._checked = True
        return self._convert(state)


def check_state_space(space: spaces.Space | None) -> None:
    """Check that the arena supports the space of a global state.

    Raises:
      ConfigError: it does not.
    """
    problem = None if space is None else unsupported(space)
    if problem:
        raise ConfigError(f"the state_space {space} is not supported: found {problem}")
