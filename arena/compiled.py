"""Functions over small arrays, compiled by Numba: where calls of NumPy cost more than the arithmetic in them.

Each is compiled once for a kind of processor, when its module is imported, and kept: in ``NUMBA_CACHE_DIR``, else
beside the module, else in the user's cache. Nothing is compiled with ``fastmath``: what is not finite stays so, and
loops over elements give the same bits on all processors.
"""

from collections.abc import Callable

from numba import njit
from numba.core.errors import NumbaError


def compiled(signature: str) -> Callable[[Callable], Callable]:
    """Return a decorator that compiles a function for these types; others are refused with a TypeError.

    Args:
      signature: in Numba's words, ``void(float32[::1], int64)`` for a C-contiguous vector and a number.
    """

    def compile_now(function: Callable) -> Callable:
        try:
            return njit(signature, cache=True, error_model="numpy")(function)
        except (RuntimeError, OSError) as error:
            if isinstance(error, NumbaError):
                raise
            return njit(signature, error_model="numpy")(function)  # no folder that it could be kept in

    return compile_now
