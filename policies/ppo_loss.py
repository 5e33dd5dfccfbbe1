"""The loss of proximal policy optimisation (Schulman et al., 2017), for autograd and in closed form.

With r = exp(log_prob - the acting policy's log_prob), A the advantage and means over the n transitions of a minibatch::

    loss = - mean(min(r A, clip(r, 1 - e, 1 + e) A)) + c_v mean((V - target)^2) - c_h mean(entropy)

The closed form is what perceptrons learn by: in small ones, a graph costs more to build and walk than the arithmetic.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from arena.common.trees import map_tree
from arena.policies.compiled.kernels import clipped_losses
from arena.policies.distributions import Distribution
from arena.policies.settings import PPOSettings

# What is averaged over the group along with every gradient.
LOSSES = ("loss/policy", "loss/value", "entropy", "kl", "clip_fraction")


class Batch(NamedTuple):
    """Transitions to learn from, tensors for autograd or arrays for the closed form: N samples on the first axis.

    Attributes:
      observations: an array ``[N, ...]`` or a nest of them.
      mask: ``[N, flags]``, or None.
      choice: ``[N, choices]``.
      log_prob: ``[N]``, of the policy that acted.
      value: ``[N]``, of the policy that acted.
      advantage: ``[N]``.
      target: ``[N]``, what the value should have been: the lambda return.
    """

    observations: Any
    mask: Any
    choice: Any
    log_prob: Any
    value: Any
    advantage: Any
    target: Any

    def at(self, chosen: Any) -> "Batch":
        """Return the samples with these indices: an array of them where the fields are arrays, else a tensor."""

        def pick(leaf: Any) -> Any:
            return leaf.take(chosen, 0) if isinstance(leaf, np.ndarray) else leaf[chosen]  # NumPy's [] takes longer

        return Batch(map_tree(pick, self.observations), *(None if field is None else pick(field) for field in self[1:]))


def loss(
    outputs: torch.Tensor,
    values: torch.Tensor,
    free: torch.Tensor,
    batch: Batch,
    distribution: Distribution,
    settings: PPOSettings,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss to descend, and ``LOSSES`` as one tensor.

    Args:
      outputs: ``[N, outputs]``, what the networks now say of the batch.
      values: ``[N]``, likewise.
      free: the distribution's free numbers.
      batch: of tensors.
      distribution: over the actions.
      settings: coefficients; ``clip`` is e in the formula.
    """
    clip = settings.clip
    log_prob, entropy = distribution.evaluate(outputs, free, batch.choice, batch.mask)
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
    with torch.no_grad():
        # The estimator of KL(old, new) with little variance: http://joschu.net/blog/kl-approx.html
        kl = (ratio - 1 - log_ratio).mean()
        clipped = ((ratio - 1).abs() > clip).float().mean()
        return total, torch.stack((policy_loss, value_loss, entropy, kl, clipped))


class LossGradients(NamedTuple):
    """The loss's derivatives and what it was made of.

    Attributes:
      outputs: ``[N, outputs]``, by what the policy network said.
      values: ``[N]``, by what the value network said.
      free: by the distribution's free numbers.
      losses: ``LOSSES``, float64 ``[5]``.
    """

    outputs: np.ndarray
    values: np.ndarray
    free: np.ndarray
    losses: np.ndarray


def loss_gradients(
    outputs: np.ndarray,
    values: np.ndarray,
    free: np.ndarray,
    batch: Batch,
    distribution: Distribution,
    settings: PPOSettings,
) -> LossGradients:
    """Return the derivatives of ``loss``, whose arguments these are as arrays."""
    count = len(values)
    log_prob, entropy, backward = distribution.differentiate(outputs, free, batch.choice, batch.mask)
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
    return LossGradients(by_outputs, by_values, by_free, losses)
