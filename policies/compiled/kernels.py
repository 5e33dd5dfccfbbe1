"""The loops of learning and acting over small arrays, compiled to machine code.

Arrays are C-contiguous, float32 where nothing else is said, and written in place.
"""

import math

import numpy as np

from arena.tensors.numba_jit import compiled

_F = np.float32
_TINY = np.finfo(np.float32).tiny
_ABREAST = 64  # sums that are worked out side by side, so that a loop becomes vectors


# Optimizing

BETA_1 = 0.9
BETA_2 = 0.999
"""How much of Adam's running means stays at each step."""


@compiled("void(float32[::1], float32[::1], float32[::1], float32[::1], float32, float32, float32, float32)")
def adam_step(
    parameters: np.ndarray,
    gradient: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    scale: float,
    rate: float,
    correction: float,
    epsilon: float,
) -> None:
    """Take a step of Adam along ``scale`` times the gradient; see ``FlatAdam``.

    Args:
      parameters: ``[P]``.
      gradient: ``[P]``.
      first: ``[P]``, running mean of the gradient.
      second: ``[P]``, running mean of its square.
      scale: of the gradient.
      rate: learning rate, corrected for the first moment.
      correction: the square root of 1 / (1 - beta_2^steps).
      epsilon: what is added to the denominator.
    """
    for i in range(len(parameters)):
        slope = scale * gradient[i]
        first[i] += _F(1 - BETA_1) * (slope - first[i])
        second[i] += _F(1 - BETA_2) * (slope * slope - second[i])
        parameters[i] -= rate * first[i] / (np.sqrt(second[i]) * correction + epsilon)


@compiled("void(float32[::1], float32[::1], float32)")
def mix(target: np.ndarray, source: np.ndarray, share: float) -> None:
    """Move ``target`` ``[P]`` towards ``source`` ``[P]`` by this share of the way."""
    for i in range(len(target)):
        target[i] += share * (source[i] - target[i])


@compiled("float32(float32[::1])")
def squared_length(vector: np.ndarray) -> float:
    """Return the sum of the squares of all elements; not finite where one of them is not, or float32 ends.

    It is added up in the same order on every processor, so that workers on different ones agree on every bit.
    """
    sums = np.zeros(_ABREAST)
    whole = len(vector) // _ABREAST * _ABREAST
    for i in range(0, whole, _ABREAST):
        part = vector[i : i + _ABREAST]
        for j in range(_ABREAST):
            sums[j] += np.float64(part[j]) * np.float64(part[j])
    found = 0.0
    for j in range(_ABREAST):
        found += sums[j]
    for i in range(whole, len(vector)):
        found += np.float64(vector[i]) * np.float64(vector[i])
    return found


# Choices


@compiled("void(float32[:, ::1], float32[:, ::1], float32[::1])")
def gumbel_argmax(logits: np.ndarray, noise: np.ndarray, choice: np.ndarray) -> None:
    """Choose from each row of logits ``[M, width]`` with Gumbel noise (Gumbel, 1954), which makes a sample of it.

    Args:
      logits: ``[M, width]``.
      noise: ``[M, width]``, exponential numbers: minus the logarithm of one is Gumbel noise.
      choice: ``[M]``, the place of the largest sum.
    """
    for i in range(len(logits)):
        best, most = 0, _F(-np.inf)
        for j in range(logits.shape[1]):
            found = logits[i, j] - np.log(max(noise[i, j], _TINY))  # finite, so that NEVER stays never
            if found > most:
                best, most = j, found
        choice[i] = best


@compiled("void(float32[:, ::1], float32[::1], float32[:, ::1], float32[::1], float32[::1])")
def log_softmax(
    logits: np.ndarray,
    choice: np.ndarray,
    log_p: np.ndarray,
    log_prob: np.ndarray,
    entropy: np.ndarray,
) -> None:
    """Write the logarithm of each probability ``[M, width]``, that of the choice ``[M]``, and the entropy ``[M]``.

    Choices, whole numbers below the width, are not checked.
    """
    for i in range(len(logits)):
        most, total, mean = logits[i, 0], _F(0), _F(0)
        for j in range(1, logits.shape[1]):
            most = max(most, logits[i, j])
        for j in range(logits.shape[1]):
            weight = np.exp(logits[i, j] - most)
            total += weight
            mean += weight * (logits[i, j] - most)
        mean /= total
        total = np.log(total)
        for j in range(logits.shape[1]):
            log_p[i, j] = logits[i, j] - most - total
        log_prob[i] = log_p[i, int(choice[i])]
        entropy[i] = total - mean


@compiled("void(float32[:, ::1], float32[::1], float32[::1], float32[::1], float32, float32[:, ::1])")
def log_softmax_backward(
    log_p: np.ndarray,
    choice: np.ndarray,
    entropy: np.ndarray,
    by_log_prob: np.ndarray,
    by_entropy: float,
    by_logits: np.ndarray,
) -> None:
    """Write the derivatives by the logits ``[M, width]``.

    That of log p_i by logit j is [i = j] - p_j, that of the entropy H is -p_j (log p_j + H).

    Args:
      log_p: as ``log_softmax`` wrote it.
      choice: ``[M]``.
      entropy: ``[M]``.
      by_log_prob: ``[M]``, of the loss by the logarithm of each choice's probability.
      by_entropy: of the loss by each entropy.
      by_logits: ``[M, width]``.
    """
    for i in range(len(log_p)):
        for j in range(log_p.shape[1]):
            p = np.exp(log_p[i, j])
            by_logits[i, j] = -p * (by_log_prob[i] + by_entropy * (log_p[i, j] + entropy[i]))
        by_logits[i, int(choice[i])] += by_log_prob[i]


# Learning


@compiled(
    "void(float32[::1], float32[::1], float32[::1], float32[::1], float32[::1], float32[::1],"
    " float32[::1], float64, float64, float64, float32[::1], float32[::1], float64[::1])"
)
def clipped_losses(
    log_prob: np.ndarray,
    old_log_prob: np.ndarray,
    advantage: np.ndarray,
    values: np.ndarray,
    old_values: np.ndarray,
    targets: np.ndarray,
    entropy: np.ndarray,
    clip: float,
    value_clip: float,
    value_coefficient: float,
    by_log_prob: np.ndarray,
    by_values: np.ndarray,
    losses: np.ndarray,
) -> None:
    """Work out the parts of PPO's loss over N transitions; see ``ppo_loss``.

    Args:
      log_prob: ``[N]``.
      old_log_prob: ``[N]``, of the policy that acted.
      advantage: ``[N]``.
      values: ``[N]``.
      old_values: ``[N]``, of the policy that acted.
      targets: ``[N]``, what the values should have been.
      entropy: ``[N]``.
      clip: e in the formula.
      value_clip: likewise for the values; infinite for none.
      value_coefficient: c_v in the formula.
      by_log_prob: ``[N]``, derivatives of the loss, which is a mean.
      by_values: ``[N]``, likewise.
      losses: ``[5]``, means: of minus what is maximised, of the values' squared errors, of the entropies, of the
        estimates of the KL divergence; and the share of ratios outside the bounds.
    """
    count = len(values)
    losses[:] = 0
    for i in range(count):
        log_ratio = np.float64(log_prob[i]) - old_log_prob[i]
        ratio = math.exp(log_ratio)
        surrogate = ratio * advantage[i]
        bounded = min(max(ratio, 1 - clip), 1 + clip) * advantage[i]
        # Where the minimum is the clipped term, the ratio has no influence.
        by_log_prob[i] = 0 if surrogate > bounded else -surrogate / count
        losses[0] -= bounded if bounded < surrogate else surrogate  # noqa: FURB136 (NaN stays)
        losses[2] += entropy[i]
        losses[3] += ratio - 1 - log_ratio
        losses[4] += abs(ratio - 1) > clip

        error = np.float64(values[i]) - targets[i]
        squared = error * error
        moved = np.float64(values[i]) - old_values[i]
        if abs(moved) > value_clip:
            near = old_values[i] + (value_clip if moved > 0 else -value_clip) - targets[i]
            # Where the maximum is the clipped term, the value has no influence.
            if near * near > squared:
                squared, error = near * near, 0.0
        losses[1] += squared
        by_values[i] = 2 * value_coefficient / count * error
    for i in range(len(losses)):
        losses[i] /= count


@compiled("float32(float32[:, ::1])")
def total(array: np.ndarray) -> float:
    """Return the sum of all elements: not finite where one of them is not."""
    found = _F(0)
    for i in range(array.shape[0]):
        for j in range(array.shape[1]):
            found += array[i, j]
    return found
