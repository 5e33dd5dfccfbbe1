"""The names that users' own code finds here; everything else is in ``arena.common.registry``."""

from arena.common.registry import make_environment

__all__ = ["make_environment"]
