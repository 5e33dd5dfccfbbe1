"""Functions over small arrays, compiled by Numba: where calls of NumPy cost more than the arithmetic in them.

Each is compiled when its module is imported, and cached: in ``NUMBA_CACHE_DIR``, else beside the module, else in the
user's cache, in a folder for each processor type and each version of the module's source. So machines that share a disk
do not load each other's code, and a rank that starts during a compilation does not load a stale result.

Nothing is compiled with ``fastmath``: values that are not finite stay so, and element-wise arithmetic gives the same
bits on all processors.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

# Numba's coloured messages import colorama, which writes an escape sequence to standard output at the end of each
# process, also if that is a pipe or a file.
_COLORS = "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING"
_before = os.environ.get(_COLORS)
os.environ[_COLORS] = "1"

import numba  # noqa: E402
from llvmlite import binding  # noqa: E402
from numba import njit  # noqa: E402
from numba.core.errors import NumbaError  # noqa: E402

if _before is None:
    del os.environ[_COLORS]


__all__ = ["compiled", "njit"]


def compiled(signature: str) -> Callable[[Callable], Callable]:
    """Return a decorator that compiles a function for these types; calls with others raise a TypeError.

    Args:
      signature: in Numba's notation, ``void(float32[::1], int64)`` for a C-contiguous vector and a number.
    """

    def compile_now(function: Callable) -> Callable:
        before = numba.config.CACHE_DIR
        folder = _folder(Path(function.__code__.co_filename), before)
        if folder is not None:
            numba.config.CACHE_DIR = str(folder)
            try:
                return njit(signature, cache=True, error_model="numpy")(function)
            except NumbaError:
                raise
            except Exception:  # the cached file is damaged: unpickling it may raise anything
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                numba.config.CACHE_DIR = before
        return numba.njit(signature, error_model="numpy")(function)

    return compile_now


def _folder(module: Path, folder: str) -> Path | None:
    """Return the cache folder of a module; None if none is writable."""
    kind = [binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten(), numba.__version__, sys.version]
    digest = hashlib.sha256("\n".join(kind).encode() + module.read_bytes()).hexdigest()[:16]
    for place in [Path(folder)] if folder else [module.parent / "__pycache__", *_user_cache()]:
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK | os.X_OK):
            return place / f"{module.stem}.{digest}"
    return None


def _user_cache() -> list[Path]:
    try:
        return [Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arena"]
    except RuntimeError:  # this user has no home directory
        return []
