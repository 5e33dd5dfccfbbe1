"""Random streams, derived from the run's seed and a description of their user, never from a rank number."""

import hashlib
import random

import numpy as np


def derive_seed(seed: int, *what: str | int) -> int:
    """Return a seed in ``[0, 2**31)`` for the user that ``what`` describes, for example ``("match", 3, "copy", 1)``.

    The bound suits every library that takes seeds (NumPy's legacy generator allows 32 bits, some games only 31).
    The same arguments always give the same seed, on every machine and in every process.
    """
    digest = hashlib.blake2b(repr((seed, *what)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 33


def seed_global_generators(seed: int) -> None:
    """Seed Python's and NumPy's global generators, which users' environments and policies may draw from."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (users' code may use the global generator)
