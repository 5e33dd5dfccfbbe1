"""Observations of one vector, written into the input buffers of compiled networks."""

import numpy as np

from arena.policies.encoders.leaves import Vector
from arena.tensors.numba_jit import compiled


class VectorInput:
    """The ``Vector`` encoder of a network in NumPy, on the CPU; later changes of its statistics affect it.

    Attributes:
      width: numbers of the vector.
    """

    def __init__(self, encoder: Vector) -> None:
        """Create it for an encoder."""
        self.width = encoder.width
        self._scale = encoder.scale
        normalization = encoder.applied
        self._normalization: tuple[np.ndarray, np.ndarray, float] | None = None
        if normalization is not None:
            self._normalization = normalization.shift.numpy(), normalization.factor.numpy(), normalization.clip

    def write(self, observations: np.ndarray, x: np.ndarray) -> None:
        """Write observations ``[N, ...]`` into ``x`` ``[N, width]``, float32."""
        x[...] = observations.reshape(x.shape)
        if self._scale is not None:
            x *= self._scale
        if self._normalization is not None:
            _normalize(x, *self._normalization)


@compiled("void(float32[:, :], float32[::1], float32[::1], float32)")
def _normalize(x: np.ndarray, shift: np.ndarray, factor: np.ndarray, clip: float) -> None:
    """Shift, scale and clip the columns of ``x`` ``[N, width]`` in place; nan stays nan."""
    for i in range(len(x)):
        for j in range(x.shape[1]):
            y = (x[i, j] - shift[j]) * factor[j]
            if y > clip:
                y = clip
            elif y < -clip:
                y = -clip
            x[i, j] = y
