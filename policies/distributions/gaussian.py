"""The distribution over continuous actions."""

import math

import numpy as np
import torch
from gymnasium import spaces as gym_spaces

from arena.policies.distributions.base import LogProbEntropy

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class Gaussian:
    """Independent normal distributions with a standard deviation that does not depend on the observation: Box.

    The network's units map a bounded dimension to [-1, 1]; ``actions`` scales, then clips.
    """

    def __init__(self, space: gym_spaces.Box, log_std: float) -> None:
        """Read shape and bounds from the space."""
        self._space = space
        self.outputs = self.choices = math.prod(space.shape)
        self.parameters = [log_std] * self.choices
        self.flags = 0
        bounded = space.bounded_below & space.bounded_above
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._middle = np.where(bounded, np.where(bounded, low, 0) / 2 + np.where(bounded, high, 0) / 2, 0)
        self._reach = np.where(bounded, np.where(bounded, high, 0) / 2 - np.where(bounded, low, 0) / 2, 1)

    def sample(
        self,
        outputs: np.ndarray,
        parameters: np.ndarray,
        mask: np.ndarray | None,
        random: np.random.Generator,
        deterministic: bool,
    ) -> np.ndarray:
        """See ``Distribution``."""
        if deterministic:
            return outputs.copy()
        return outputs + random.standard_normal(outputs.shape, np.float32) * np.exp(parameters)

    def actions(self, choice: np.ndarray) -> np.ndarray:
        """Return ``[N, ...]`` inside the bounds."""
        scaled = self._middle + self._reach * choice.reshape(-1, *self._space.shape)
        return np.clip(scaled, self._space.low, self._space.high).astype(self._space.dtype)

    def evaluate(
        self, outputs: torch.Tensor, parameters: torch.Tensor, choice: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``Distribution``."""
        noise = (choice - outputs) * torch.exp(-parameters)
        log_prob = -(0.5 * noise.square() + parameters + LOG_SQRT_2PI).sum(-1)
        return log_prob, (parameters + LOG_SQRT_2PI + 0.5).sum().expand_as(log_prob)

    def differentiate(
        self, outputs: np.ndarray, parameters: np.ndarray, choice: np.ndarray, mask: np.ndarray | None
    ) -> LogProbEntropy:
        """See ``Distribution``.

        With z the noise in units of the deviation s, the derivatives of log p are z / s with respect to the mean and
        z^2 - 1 with respect to log s. The entropy depends on log s only.
        """
        narrowness = np.exp(-parameters)
        noise = (choice - outputs) * narrowness

        def backward(by_log_prob: np.ndarray, by_entropy: float) -> tuple[np.ndarray, np.ndarray]:
            by_free = by_log_prob @ (noise * noise - 1) + np.float32(by_entropy * len(noise))
            return by_log_prob[:, None] * noise * narrowness, by_free

        log_prob = -(0.5 * noise * noise + parameters + LOG_SQRT_2PI).sum(-1)
        return LogProbEntropy(log_prob, np.full_like(log_prob, (parameters + LOG_SQRT_2PI + 0.5).sum()), backward)
