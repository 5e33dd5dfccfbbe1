"""The loss of proximal policy optimisation (Schulman et al., 2017), for autograd and in closed form.

With r = exp(log_prob - the acting policy's log_prob), A the advantage and means over the n transitions of a minibatch::

    loss = - mean(min(r A, clip(r, 1 - e, 1 + e) A)) + c_v mean((V - target)^2) - c_h mean(entropy)
           + c_m mean(KL(policy, magnet))

The closed form serves compiled perceptrons: in small ones, autograd's graph costs more than the arithmetic.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from arena.common.trees import map_tree
from arena.policies.compiled.kernels import clipped_losses
from arena.policies.distributions.base import Distribution
from arena.policies.distributions.discrete import Categorical
from arena.policies.on_policy.settings import PPOSettings

# Names of the losses, averaged over the group along with every gradient.
LOSSES = ("loss/policy", "loss/value", "entropy", "kl", "clip_fraction")


class Batch(NamedTuple):
    """Transitions of a minibatch, tensors for autograd or arrays for the closed form: N samples on the first axis.

    Attributes:
      observations: an array ``[N, ...]`` or a nest of them.
      mask: ``[N, flags]``, or None.
      choice: ``[N, choices]``.
      log_prob: ``[N]``, of the policy that acted.
      value: ``[N]``, of the policy that acted.
      advantage: ``[N]``.
      target: ``[N]``, the lambda return, target of the value.
      global_state: an array ``[N, ...]`` or a nest of them, input of a central critic; None without one.
      magnet: outputs of the magnet ``[N, outputs]``; None without one.
    """

    observations: Any
    mask: Any
    choice: Any
    log_prob: Any
    value: Any
    advantage: Any
    target: Any
    global_state: Any = None
    magnet: Any = None

    def at(self, chosen: Any) -> "Batch":
        """Return the samples with these indices: an array if the fields are arrays, else a tensor."""

        def pick(leaf: Any) -> Any:
            return select_rows(leaf, chosen)

        # A list: a tuple made of a generator joins Python's list of free tuples without having come from there.
        return Batch(*[None if field is None else map_tree(pick, field) for field in self])


def select_rows(array: Any, rows: Any) -> Any:
    """Return the rows ``[N, ...]`` of an array or tensor with these indices ``[N]``; they keep its order in memory."""
    if isinstance(array, np.ndarray):
        return array.take(rows, 0)  # faster than []
    if array.is_contiguous():
        return array.index_select(0, rows)  # 30 times as fast as [] for images of bytes
    strides = array.stride()
    order = sorted(range(array.dim()), key=lambda axis: -strides[axis])
    inverse = sorted(range(array.dim()), key=order.__getitem__)
    return array.permute(order).index_select(0, rows).permute(inverse)


def loss(
    outputs: torch.Tensor,
    values: torch.Tensor,
    parameters: torch.Tensor,
    batch: Batch,
    distribution: Distribution,
    settings: PPOSettings,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss to minimise, and ``LOSSES`` as one tensor.

    Args:
      outputs: ``[N, outputs]``, outputs of the policy network for the batch.
      values: ``[N]``, outputs of the value network.
      parameters: the distribution's learned parameters.
      batch: transitions, as tensors.
      distribution: distribution over the actions.
      settings: coefficients; ``clip`` is e in the formula.
    """
    clip = settings.clip
    log_prob, entropy = distribution.evaluate(outputs, parameters, batch.choice, batch.mask)
    entropy = entropy.mean()

    log_ratio = log_prob - batch.log_prob
    ratio = log_ratio.exp()
    surrogate = torch.min(ratio * batch.advantage, ratio.clamp(1 - clip, 1 + clip) * batch.advantage)
    policy_loss = -surrogate.mean()

    value_error = (values - batch.target).square()
    if settings.value_clip is not None:
        near = batch.value + (values - batch.value).clamp(-settings.value_clip, settings.value_clip)
        value_error = torch.max(value_error, (near - batch.target).square())
    value_loss = value_error.mean()

    total = policy_loss + settings.value_coefficient * value_loss
    if settings.entropy_coefficient:
        total = total - settings.entropy_coefficient * entropy
    if batch.magnet is not None:
        assert isinstance(distribution, Categorical)
        divergence = distribution.divergence(outputs, batch.magnet, batch.mask)
        total = total + settings.magnet_coefficient * divergence.mean()
    with torch.no_grad():
        # The low-variance estimator of KL(old, new): http://joschu.net/blog/kl-approx.html
        kl = (ratio - 1 - log_ratio).mean()
        clipped = ((ratio - 1).abs() > clip).float().mean()
        return total, torch.stack((policy_loss, value_loss, entropy, kl, clipped))


class LossGradients(NamedTuple):
    """Gradients of the loss, and its terms.

    Attributes:
      outputs: ``[N, outputs]``, with respect to the outputs of the policy network.
      values: ``[N]``, with respect to the outputs of the value network.
      parameters: with respect to the distribution's learned parameters.
      losses: ``LOSSES``, float64 ``[5]``.
    """

    outputs: np.ndarray
    values: np.ndarray
    parameters: np.ndarray
    losses: np.ndarray


def loss_gradients(
    outputs: np.ndarray,
    values: np.ndarray,
    parameters: np.ndarray,
    batch: Batch,
    distribution: Distribution,
    settings: PPOSettings,
) -> LossGradients:
    """Return the gradients of ``loss`` for the same arguments as arrays."""
    count = len(values)
    log_prob, entropy, backward = distribution.differentiate(outputs, parameters, batch.choice, batch.mask)
    by_log_prob, by_values = np.empty((2, count), np.float32)
    losses = np.empty(len(LOSSES))
    clipped_losses(
        log_prob,
        batch.log_prob,
        batch.advantage,
        values,
        batch.value,
        batch.target,
        entropy,
        settings.clip,
        math.inf if settings.value_clip is None else settings.value_clip,
        settings.value_coefficient,
        by_log_prob,
        by_values,
        losses,
    )
    by_outputs, by_free = backward(by_log_prob, -settings.entropy_coefficient / count)
    if batch.magnet is not None:
        assert isinstance(distribution, Categorical)
        slope = distribution.divergence_gradient(outputs, batch.magnet, batch.mask)
        by_outputs = by_outputs + np.float32(settings.magnet_coefficient / count) * slope
    return LossGradients(by_outputs, by_values, by_free, losses)
