"""Loops of learning and acting over small arrays, compiled to machine code.

Arrays are C-contiguous, float32 unless stated otherwise, and written in place.
"""

import math

import numpy as np

from arena.tensors.numba_jit import compiled

_F = np.float32
_TINY = np.finfo(np.float32).tiny
_ABREAST = 64  # sums computed side by side, so that a loop is vectorized


# Optimization

BETA_1 = 0.9
BETA_2 = 0.999
"""Decay rates of Adam's running means."""


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
      scale: factor of the gradient.
      rate: learning rate, corrected for the first moment.
      correction: the square root of 1 / (1 - beta_2^steps).
      epsilon: summand of the denominator.
    """
    for i in range(len(parameters)):
        slope = scale * gradient[i]
        first[i] += _F(1 - BETA_1) * (slope - first[i])
        second[i] += _F(1 - BETA_2) * (slope * slope - second[i])
        parameters[i] -= rate * first[i] / (np.sqrt(second[i]) * correction + epsilon)


@compiled("void(float32[::1], float32[::1], float32)")
def polyak_update(target: np.ndarray, source: np.ndarray, share: float) -> None:
    """Move ``target`` ``[P]`` towards ``source`` ``[P]`` by ``share`` (Polyak averaging)."""
    for i in range(len(target)):
        target[i] += share * (source[i] - target[i])


@compiled("float32(float32[::1])")
def squared_length(vector: np.ndarray) -> float:
    """Return the sum of the squares of all elements; not finite if one of them is not, or if it exceeds float32.

    It is summed in the same order on every processor, so that all workers get the same bits.
    """
    sums = np.zeros(_ABREAST)
    whole = len(vector) // _ABREAST * _ABREAST
    for i in range(0, whole, _ABREAST):
        part = vector[i : i + _ABREAST]
        for j in range(_ABREAST):
            sums[j] += np.float64(part[j]) * np.float64(part[j])
    result = 0.0
    for j in range(_ABREAST):
        result += sums[j]
    for i in range(whole, len(vector)):
        result += np.float64(vector[i]) * np.float64(vector[i])
    return result


# Choices


@compiled("void(float32[:, ::1], float32[:, ::1], float32[::1])")
def gumbel_argmax(logits: np.ndarray, noise: np.ndarray, choice: np.ndarray) -> None:
    """Sample from each row of logits ``[M, width]`` by the argmax with Gumbel noise (Gumbel, 1954).

    Args:
      logits: ``[M, width]``.
      noise: ``[M, width]``, exponential numbers: minus the logarithm of one is Gumbel noise.
      choice: ``[M]``, index of the largest sum.
    """
    for i in range(len(logits)):
        best, most = 0, _F(-np.inf)
        for j in range(logits.shape[1]):
            # The logarithm stays finite, so that masked actions are never chosen.
            perturbed = logits[i, j] - np.log(max(noise[i, j], _TINY))
            if perturbed > most:
                best, most = j, perturbed
        choice[i] = best


@compiled("void(float32[:, ::1], float32[::1], float32[:, ::1], float32[::1], float32[::1])")
def log_softmax(
    logits: np.ndarray,
    choice: np.ndarray,
    log_p: np.ndarray,
    log_prob: np.ndarray,
    entropy: np.ndarray,
) -> None:
    """Write log probabilities ``[M, width]``, those of the choices ``[M]``, and entropies ``[M]``.

    Choices, integers below the width, are not checked.
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
    """Write the gradients with respect to the logits ``[M, width]``.

    The derivative of log p_i with respect to logit j is [i = j] - p_j, that of the entropy H is -p_j (log p_j + H).

    Args:
      log_p: as written by ``log_softmax``.
      choice: ``[M]``.
      entropy: ``[M]``.
      by_log_prob: ``[M]``, gradient of the loss with respect to the log probability of each choice.
      by_entropy: gradient of the loss with respect to each entropy.
      by_logits: ``[M, width]``, written.
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
    """Compute the terms of PPO's loss over N transitions; see ``ppo_loss``.

    Args:
      log_prob: ``[N]``.
      old_log_prob: ``[N]``, of the policy that acted.
      advantage: ``[N]``.
      values: ``[N]``.
      old_values: ``[N]``, of the policy that acted.
      targets: ``[N]``, targets of the values.
      entropy: ``[N]``.
      clip: e in the formula.
      value_clip: likewise for the values; infinite for none.
      value_coefficient: c_v in the formula.
      by_log_prob: ``[N]``, gradient of the loss, which is a mean.
      by_values: ``[N]``, likewise.
      losses: ``[5]``, means of the negative objective, of the squared errors of the values, of the entropies and of the
        estimates of the KL divergence; and the share of ratios outside the bounds.
    """
    count = len(values)
    losses[:] = 0
    for i in range(count):
        log_ratio = np.float64(log_prob[i]) - old_log_prob[i]
        ratio = math.exp(log_ratio)
        surrogate = ratio * advantage[i]
        bounded = min(max(ratio, 1 - clip), 1 + clip) * advantage[i]
        # Where the minimum is the clipped term, the ratio has no gradient.
        by_log_prob[i] = 0 if surrogate > bounded else -surrogate / count
        losses[0] -= bounded if bounded < surrogate else surrogate  # noqa: FURB136 (NaN is kept)
        losses[2] += entropy[i]
        losses[3] += ratio - 1 - log_ratio
        losses[4] += abs(ratio - 1) > clip

        error = np.float64(values[i]) - targets[i]
        squared = error * error
        moved = np.float64(values[i]) - old_values[i]
        if abs(moved) > value_clip:
            near = old_values[i] + (value_clip if moved > 0 else -value_clip) - targets[i]
            # Where the maximum is the clipped term, the value has no gradient.
            if near * near > squared:
                squared, error = near * near, 0.0
        losses[1] += squared
        by_values[i] = 2 * value_coefficient / count * error
    for i in range(len(losses)):
        losses[i] /= count


@compiled("float32(float32[:, ::1])")
def sum_of(array: np.ndarray) -> float:
    """Return the sum of all elements; not finite if one of them is not."""
    result = _F(0)
    for i in range(array.shape[0]):
        for j in range(array.shape[1]):
            result += array[i, j]
    return result
