"""Noise for actions, for each lane: white, or pink (Eberhard et al., Pink noise is all you need, 2023)."""

from collections.abc import Mapping

import numpy as np

SEQUENCE = 1024
"""Steps of pink noise that are made at once; correlations reach no further."""


class WhiteNoise:
    """Independent standard normal numbers."""

    def __init__(self, lanes: int, dimensions: int) -> None:
        """Serve so many lanes, with so many numbers in each step."""
        self._dimensions = dimensions

    def draw(self, lanes: slice, random: np.random.Generator) -> np.ndarray:
        """Return the next step of some lanes, float32 ``[N, dimensions]``."""
        return random.standard_normal((lanes.stop - lanes.start, self._dimensions), np.float32)

    def state(self) -> dict[str, np.ndarray]:
        """Return nothing: there is no memory."""
        return {}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Load nothing."""


class PinkNoise:
    """Standard normal numbers whose power falls as 1 / frequency: each sequence is coloured by a Fourier transform."""

    def __init__(self, lanes: int, dimensions: int) -> None:
        """Serve so many lanes, with so many numbers in each step."""
        self._sequences = np.zeros((lanes, SEQUENCE, dimensions), np.float32)
        self._place = np.full(lanes, SEQUENCE)

    def draw(self, lanes: slice, random: np.random.Generator) -> np.ndarray:
        """Return the next step of some lanes, float32 ``[N, dimensions]``."""
        place = self._place[lanes]
        used_up = lanes.start + np.flatnonzero(place == SEQUENCE)
        if len(used_up):
            self._sequences[used_up] = pink(len(used_up), self._sequences.shape[2], random)
            self._place[used_up] = 0
        found = self._sequences[np.arange(lanes.start, lanes.stop), place]
        place += 1
        return found

    def state(self) -> dict[str, np.ndarray]:
        """Return what is left of the sequences."""
        return {"noise": self._sequences.copy(), "noise_place": self._place.copy()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Load what ``state`` returned; new sequences begin where it was of other lanes."""
        if state["noise"].shape != self._sequences.shape:
            return
        self._sequences[...] = state["noise"]
        self._place[...] = state["noise_place"]


def pink(lanes: int, dimensions: int, random: np.random.Generator) -> np.ndarray:
    """Return pink noise of mean 0 and variance 1, float32 ``[lanes, SEQUENCE, dimensions]`` (Timmer & Koenig, 1995)."""
    frequencies = np.fft.rfftfreq(SEQUENCE)
    scale = np.maximum(frequencies, 1 / SEQUENCE) ** -0.5
    scale[0] = 0.0  # the mean
    shape = (lanes, dimensions, len(frequencies))
    spectrum = scale * (random.standard_normal(shape) + 1j * random.standard_normal(shape))
    spectrum[..., -1] = spectrum[..., -1].real * np.sqrt(2)
    # Variance of the sum over frequencies: each of them counts twice (for its negative one), but for the last.
    deviation = 2 * np.sqrt((scale[1:-1] ** 2).sum() + scale[-1] ** 2 / 2) / SEQUENCE
    return np.ascontiguousarray(np.fft.irfft(spectrum, SEQUENCE).swapaxes(1, 2) / deviation, np.float32)


NOISES: dict[str, type[WhiteNoise] | type[PinkNoise]] = {"white": WhiteNoise, "pink": PinkNoise}
