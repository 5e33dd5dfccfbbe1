"""Layers of small perceptrons, forward and backward, compiled to machine code.

Arrays are C-contiguous, float32, and written in place.
"""

import numpy as np

from arena.tensors.numba_jit import compiled, njit

LINEAR, TANH, RELU = 0, 1, 2
"""Numbers of the activations."""

OBSERVATIONS = -1
"""Source of a layer that reads observations."""

SOURCE, WEIGHT, BIAS, INPUTS, OUTPUTS, ACTIVATION, PLACE = range(7)
"""Columns of a table of layers: the row of the layer that it reads, the offsets of its weight ``[outputs, inputs]`` and
its bias in the vector of all parameters, its widths, its activation, and its offset: the sum of the widths before
it."""

SMALL_LAYER = 8192
"""Largest number of weights of a layer that is computed for few samples at a time: BLAS does not pack such products."""

FORWARD_PART, BACKWARD_PART = 128, 64
"""Number of those samples, measured with layers of 64 x 64 (benchmarks/NOTES.md)."""

_F = np.float32


@njit(error_model="numpy")
def tanh(x: float) -> float:
    """Return tanh to 2e-7, as the rational function that Eigen and XLA use: loops over it are vectorized."""
    if x > _F(7.9053111):
        x = _F(7.9053111)
    if x < _F(-7.9053111):
        x = _F(-7.9053111)
    s = x * x
    p = _F(-2.76076847742355e-16)
    p = s * p + _F(2.00018790482477e-13)
    p = s * p + _F(-8.60467152213735e-11)
    p = s * p + _F(5.12229709037114e-08)
    p = s * p + _F(1.48572235717979e-05)
    p = s * p + _F(6.37261928875436e-04)
    p = s * p + _F(4.89352455891786e-03)
    q = _F(1.19825839466702e-06)
    q = s * q + _F(1.18534705686654e-04)
    q = s * q + _F(2.26843463243900e-03)
    q = s * q + _F(4.89352518554385e-03)
    return x * p / q


@njit(error_model="numpy")
def _rows_at_once(layers: np.ndarray, row: int, count: int, small: int) -> int:
    """Return the number of samples that a layer computes at a time: ``small`` where small products are fastest."""
    return small if count > small and layers[row, INPUTS] * layers[row, OUTPUTS] <= SMALL_LAYER else max(count, 1)


@njit(error_model="numpy")
def _layer_outputs(results: np.ndarray, layers: np.ndarray, row: int, count: int, first: int, last: int) -> np.ndarray:
    """Return the outputs of a layer for the samples ``first`` to ``last`` (exclusive), ``[N, outputs]``."""
    start, outputs = count * layers[row, PLACE], layers[row, OUTPUTS]
    return results[start + first * outputs : start + last * outputs].reshape(last - first, outputs)


@njit(error_model="numpy")
def _weight_of(parameters: np.ndarray, layers: np.ndarray, row: int) -> np.ndarray:
    """Return the weight of a layer, ``[outputs, inputs]``."""
    inputs, outputs, start = (
        layers[row, INPUTS],
        layers[row, OUTPUTS],
        layers[row, WEIGHT],
    )
    return parameters[start : start + outputs * inputs].reshape(outputs, inputs)


@njit(error_model="numpy")
def _through_activation(by_y: np.ndarray, y: np.ndarray, activation: int) -> None:
    """Convert gradients with respect to activations to those with respect to the linear outputs."""
    if activation == TANH:
        for i in range(len(y)):
            for j in range(y.shape[1]):
                by_y[i, j] *= _F(1) - y[i, j] * y[i, j]
    elif activation == RELU:
        for i in range(len(y)):
            for j in range(y.shape[1]):
                by_y[i, j] = by_y[i, j] if y[i, j] > _F(0) else _F(0)


@compiled("void(float32[::1], int64[:, ::1], float32[:, ::1], float32[::1])")
def forward(
    parameters: np.ndarray,
    layers: np.ndarray,
    observations: np.ndarray,
    results: np.ndarray,
) -> None:
    """Compute layers in sequence, each after the one that it reads.

    Args:
      parameters: ``[P]``.
      layers: ``[layers, 7]``, a table; its sources are rows of this table.
      observations: ``[N, inputs]``.
      results: for N samples, the outputs of each layer, ``[N, outputs]`` from N times its offset on.
    """
    count = len(observations)
    for row in range(len(layers)):
        outputs, part = (
            layers[row, OUTPUTS],
            _rows_at_once(layers, row, count, FORWARD_PART),
        )
        bias = parameters[layers[row, BIAS] : layers[row, BIAS] + outputs]
        weight = _weight_of(parameters, layers, row).T
        turned = np.ascontiguousarray(weight) if part < count else np.empty((0, 0), np.float32)
        for first in range(0, count, part):
            last = min(count, first + part)
            y = _layer_outputs(results, layers, row, count, first, last)
            x = observations[first:last]
            if layers[row, SOURCE] != OBSERVATIONS:
                x = _layer_outputs(results, layers, layers[row, SOURCE], count, first, last)
            if part < count:
                np.dot(x, turned, y)
            else:
                np.dot(x, weight, y)
            if layers[row, ACTIVATION] == TANH:
                for i in range(len(y)):
                    for j in range(outputs):
                        y[i, j] = tanh(y[i, j] + bias[j])
            elif layers[row, ACTIVATION] == RELU:
                for i in range(len(y)):
                    for j in range(outputs):
                        output = y[i, j] + bias[j]
                        y[i, j] = output if output > _F(0) else _F(0) * output  # keeps values that are not finite
            else:
                for i in range(len(y)):
                    for j in range(outputs):
                        y[i, j] += bias[j]


@compiled("void(float32[::1], float32[::1], int64[:, ::1], float32[:, ::1], float32[::1], float32[::1], float32)")
def backward(
    parameters: np.ndarray,
    gradient: np.ndarray,
    layers: np.ndarray,
    observations: np.ndarray,
    results: np.ndarray,
    gradients: np.ndarray,
    share: float,
) -> None:
    """Write the gradients with respect to all weights and biases of layers that ``forward`` has computed.

    Args:
      parameters: ``[P]``.
      gradient: ``[P]``, laid out like ``parameters``.
      layers: ``[layers, 7]``.
      observations: ``[N, inputs]``.
      results: as written by ``forward``.
      gradients: laid out like ``results``, gradients with respect to each layer's outputs: given for the last layers.
      share: factor of the last layer's gradient in the layer that it reads: 1 for all of it.
    """
    count = len(observations)
    has_gradient = np.zeros(len(layers), np.bool_)
    for row in range(len(layers) - 1, -1, -1):
        outputs, source = layers[row, OUTPUTS], layers[row, SOURCE]
        by_bias = gradient[layers[row, BIAS] : layers[row, BIAS] + outputs]
        by_bias[:] = _F(0)
        weight, by_weight = (
            _weight_of(parameters, layers, row),
            _weight_of(gradient, layers, row),
        )
        part = _rows_at_once(layers, row, count, BACKWARD_PART)
        for first in range(0, count, part):
            last = min(count, first + part)
            by_y = _layer_outputs(gradients, layers, row, count, first, last)
            _through_activation(
                by_y,
                _layer_outputs(results, layers, row, count, first, last),
                layers[row, ACTIVATION],
            )
            for i in range(len(by_y)):
                for j in range(outputs):
                    by_bias[j] += by_y[i, j]
            x = observations[first:last]
            if source != OBSERVATIONS:
                x = _layer_outputs(results, layers, source, count, first, last)
            if first == 0:
                np.dot(by_y.T, x, by_weight)
            else:
                by_weight += np.dot(by_y.T, x)
            if source == OBSERVATIONS:
                continue
            by_x = _layer_outputs(gradients, layers, source, count, first, last)
            if has_gradient[source]:
                by_x += np.dot(by_y, weight)
            else:
                np.dot(by_y, weight, by_x)
                if row == len(layers) - 1:
                    by_x *= share
        if source != OBSERVATIONS:
            has_gradient[source] = True


@compiled("void(float32[::1], int64[:, ::1], float32[::1], float32[::1], int64[::1], float32[:, ::1])")
def backward_to_inputs(
    parameters: np.ndarray,
    layers: np.ndarray,
    results: np.ndarray,
    gradients: np.ndarray,
    heads: np.ndarray,
    input_gradients: np.ndarray,
) -> None:
    """Write the gradients with respect to the first layers' inputs, but not to weights.

    At most one other layer reads each layer.

    Samples with zero gradients of a head cost no time: of two critics, each has the lower value for some samples.

    Args:
      parameters: ``[P]``.
      layers: ``[layers, 7]``.
      results: as written by ``forward``.
      gradients: as in ``backward``; unchanged.
      heads: the layers that no other layer reads.
      input_gradients: ``[N, inputs]``.
    """
    count = len(input_gradients)
    input_gradients[:] = _F(0)
    chosen = np.empty(count, np.int64)
    for head in heads:
        head_gradients, used = _layer_outputs(gradients, layers, head, count, 0, count), 0
        for i in range(count):
            for j in range(head_gradients.shape[1]):
                if head_gradients[i, j] != _F(0):
                    chosen[used] = i
                    used += 1
                    break
        here = chosen[:used]
        by_y, row = head_gradients[here], head
        while True:
            _through_activation(
                by_y,
                _layer_outputs(results, layers, row, count, 0, count)[here],
                layers[row, ACTIVATION],
            )
            by_x = np.dot(by_y, _weight_of(parameters, layers, row))
            if layers[row, SOURCE] == OBSERVATIONS:
                for i in range(used):
                    for j in range(by_x.shape[1]):
                        input_gradients[here[i], j] += by_x[i, j]
                break
            by_y, row = by_x, layers[row, SOURCE]
