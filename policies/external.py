"""A seat that is taken from outside, over HTTP: there is nothing here that could act."""

from typing import Any

from arena.common.errors import ConfigError


class External:
    """What stands for somebody outside where a policy is asked for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Refuse.

        Raises:
          ConfigError: always.
        """
        raise ConfigError(
            "policy 'external': expected a match of a run, in which somebody outside takes the seat over HTTP; "
            "nothing else can ask for its actions"
        )
