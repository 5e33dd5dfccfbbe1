"""Random streams: derived from the run's seed and from what a thing is, never from a rank number."""

import hashlib


def derive_seed(seed: int, *what: str | int) -> int:
    """Return a seed in ``[0, 2**31)`` for the thing that ``what`` names, for example ``("match", 3, "copy", 1)``.

    The bound suits every library that takes seeds (NumPy's legacy generator allows 32 bits, some games only 31).
    The same arguments always give the same seed, on every machine and in every process.
    """
    digest = hashlib.blake2b(repr((seed, *what)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 33
