"""The arena: many reinforcement-learning policies learn at once, with and against each other, over MPI."""

import importlib
from typing import TYPE_CHECKING, Any

from arena.common.package import VERSION

if TYPE_CHECKING:
    from arena.api.compare import compare
    from arena.api.player import Player, load
    from arena.api.run import Run
    from arena.api.train import RunFailed, train
    from arena.common.errors import ConfigError
    from arena.common.registry import make_environment
    from arena.sweeps.sweep import sweep

__version__ = VERSION
__all__ = [
    "ConfigError",
    "Player",
    "Run",
    "RunFailed",
    "compare",
    "load",
    "make_environment",
    "sweep",
    "train",
]

_PLACES = {
    "ConfigError": "arena.common.errors",
    "Player": "arena.api.player",
    "Run": "arena.api.run",
    "RunFailed": "arena.api.train",
    "compare": "arena.api.compare",
    "load": "arena.api.player",
    "make_environment": "arena.common.registry",
    "sweep": "arena.sweeps.sweep",
    "train": "arena.api.train",
}


def __getattr__(name: str) -> Any:
    # Loaded when first used: ranks import this package too, and most of them load neither torch nor pandas.
    if name not in _PLACES:
        raise AttributeError(f"module 'arena' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
