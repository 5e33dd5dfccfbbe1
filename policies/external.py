"""Placeholder policy of external seats, which get their actions over HTTP."""

from typing import Any

from arena.common.errors import ConfigError


class External:
    """Placeholder for an external agent where a policy class is required."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Raise: an external seat has no policy.

        Raises:
          ConfigError: always.
        """
        raise ConfigError(
            "policy 'external': expected a match of a run, in which an external agent takes the seat over HTTP; "
            "nothing else can act on it"
        )
