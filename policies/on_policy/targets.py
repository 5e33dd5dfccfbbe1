"""Targets of an update: advantages for the policy and targets for the values, over the rollouts of all workers."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from arena.experience.rollout import Rollout
from arena.policies.networks import PolicyAndValue
from arena.policies.on_policy.returns import advantages
from arena.policies.on_policy.settings import PPOSettings
from arena.policies.on_policy.value_scale import ValueScale, constant_value
from arena.tensors.reducer import Reducer


class Targets(NamedTuple):
    """Targets of one worker's rollout.

    Attributes:
      advantage: ``[T, L]``, normalised over the group with ``normalize_advantages``.
      target: targets of the values, ``[T, L]``.
      metrics: number of the group's transitions, and the explained variance of their returns.
    """

    advantage: np.ndarray
    target: np.ndarray
    metrics: Mapping[str, float]


def targets_of(
    rollout: Rollout,
    rewards: np.ndarray,
    group: Reducer,
    networks: PolicyAndValue,
    settings: PPOSettings,
    *,
    update: int,
) -> Targets:
    """Return the targets of a rollout; all workers of the group make this call.

    With a normalisation of values, the statistics of ``networks.value_scale`` and the rollout's values change.

    Args:
      rollout: this worker's rollout, with values.
      rewards: the rewards to learn from, ``[T, L]``.
      group: all workers.
      networks: the networks that learn.
      settings: settings of the update.
      update: number of the update, for messages.

    Raises:
      FloatingPointError: rewards or values are not finite; raised by all workers together.
    """
    values, scale = rollout.extras["value"], networks.value_scale
    if scale is not None:
        _recenter(rollout, rewards, group, scale, settings)
    advantage = _advantages(rollout, rewards, values, settings)
    target = advantage + values[:-1]
    a, r = advantage[rollout.valid].astype(np.float64), target[rollout.valid].astype(np.float64)
    moments = np.array([len(a), a.sum(), a @ a, r.sum(), r @ r])
    group.sum_in_place(moments)
    if not np.isfinite(moments).all():
        raise FloatingPointError(f"update {update}: rewards or values are not finite; advantages are nan")
    count, metrics = moments[0], {"samples": float(moments[0]), "explained_variance": 0.0}
    if count:
        mean, target_mean = moments[1] / count, moments[3] / count
        variance = max(moments[2] / count - mean**2, 0.0)
        target_variance = moments[4] / count - target_mean**2
        # The advantage is the error of the value.
        if target_variance > 1e-12:
            metrics["explained_variance"] = float(1 - variance / target_variance)
        if settings.normalize_advantages:
            advantage = ((advantage - mean) / (math.sqrt(variance) + 1e-8)).astype(np.float32)
        if scale is not None:
            scale.rescale(target_variance, networks.value_head)
    return Targets(advantage, target, metrics)


def _recenter(rollout: Rollout, rewards: np.ndarray, group: Reducer, scale: ValueScale, settings: PPOSettings) -> None:
    """Include the constant value of the group's rollouts in the mean of the values; change those of this one."""
    values, valid = rollout.extras["value"], rollout.valid
    nothing, ones = np.zeros_like(values), np.ones_like(values)
    targets = _advantages(rollout, rewards, nothing, settings)
    weights = _advantages(rollout, np.zeros_like(rewards), ones, settings) + ones[:-1]
    sums = np.array([valid.sum(), targets[valid].sum(dtype=np.float64), weights[valid].sum(dtype=np.float64)])
    group.sum_in_place(sums)
    mean = constant_value(sums[1] / sums[0], sums[2] / sums[0]) if sums[0] else None
    if mean is not None and math.isfinite(mean):  # rewards that are not finite are reported later
        values += np.float32(scale.recenter(mean))


def _advantages(rollout: Rollout, rewards: np.ndarray, values: np.ndarray, settings: PPOSettings) -> np.ndarray:
    """Return the advantages ``[T, L]`` of a rollout's transitions, with these rewards and values."""
    outcomes = rollout.terminated, rollout.truncated, rollout.valid, rollout.next_slot
    return advantages(rewards, values, *outcomes, gamma=settings.gamma, gae_lambda=settings.gae_lambda)
