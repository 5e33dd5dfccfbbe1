"""The random generator of a policy, and its state as one small array that a checkpoint can hold."""

import numpy as np


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
