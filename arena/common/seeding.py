"""Random streams, derived from the run's seed and a description of their user, never from a rank number."""

import hashlib
import random

import numpy as np


def derive_seed(seed: int, *path: str | int) -> int:
    """Return a seed in ``[0, 2**31)`` for the user that ``path`` describes, for example ``("match", 3, "copy", 1)``.

    The bound suits every library that takes seeds (NumPy's legacy generator allows 32 bits, some games only 31).
    The same arguments always give the same seed, on every machine and in every process.
    """
    digest = hashlib.blake2b(repr((seed, *path)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 33


def seed_global_generators(seed: int) -> None:
    """Seed Python's and NumPy's global generators, which users' environments and policies may draw from."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (users' code may use the global generator)


def new_generator(seed: int) -> np.random.Generator:
    """Return a generator; SFC64 is fast, and its state is a few integers."""
    return np.random.Generator(np.random.SFC64(seed))


def generator_state(generator: np.random.Generator) -> np.ndarray:
    """Return the state as int64 ``[6]`` (the bits of four words, a flag and a buffered half word)."""
    state = generator.bit_generator.state
    words = [*state["state"]["state"], state["has_uint32"], state["uinteger"]]
    return np.array(words, np.uint64).view(np.int64)


def set_generator_state(generator: np.random.Generator, state: np.ndarray) -> None:
    """Restore a state returned by ``generator_state``."""
    words = np.array(state, np.int64).view(np.uint64)
    generator.bit_generator.state = {
        "bit_generator": "SFC64",
        "state": {"state": words[:4]},
        "has_uint32": int(words[4]),
        "uinteger": int(words[5]),
    }
