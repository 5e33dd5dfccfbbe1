"""Distributions over discrete actions: one of several choices, and flags."""

import math

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from torch.nn import functional

from arena.policies.compiled.kernels import gumbel_argmax, log_softmax, log_softmax_backward
from arena.policies.distributions.base import LogProbEntropy

NEVER = -1.0e9  # logit of a masked action; finite, so that its probability is 0 and its gradient is too
NOWHERE = 2 * NEVER  # logit of padding; lower still, in case a mask forbids every action


class Categorical:
    """One or several independent categorical choices: Discrete and MultiDiscrete.

    Attributes:
      exploration: probability with which each choice is replaced by a uniform one among the allowed values. Log
        probabilities are those of the mixture, entropies those of the network's distribution.
      uniform_entropy: entropy of uniform choices, of which all values are allowed.
    """

    def __init__(self, space: gym_spaces.Discrete | gym_spaces.MultiDiscrete) -> None:
        """Read the sizes from the space."""
        sizes = np.atleast_1d(space.n if isinstance(space, gym_spaces.Discrete) else space.nvec.ravel()).astype(int)
        self._shape = tuple(space.shape or ())
        self._dtype = space.dtype
        self._start = np.ravel(space.start).astype(space.dtype)
        self._shifted = bool(self._start.any())
        self.exploration = 0.0
        self.choices = len(sizes)
        self.uniform_entropy = float(np.log(sizes).sum())
        self.outputs = self.flags = int(sizes.sum())
        self.parameters: list[float] = []
        self._width = int(sizes.max())
        # Choices of different sizes are padded to the widest with logits that are never chosen.
        self._present = None if (sizes == self._width).all() else np.arange(self._width) < sizes[:, None]

    def sample(
        self,
        outputs: np.ndarray,
        parameters: np.ndarray,
        mask: np.ndarray | None,
        random: np.random.Generator,
        deterministic: bool,
    ) -> np.ndarray:
        """See ``Distribution``; the argmax of logits with Gumbel noise is a sample (Gumbel, 1954)."""
        logits = self._logits(outputs, mask)
        if deterministic:
            return logits.argmax(1).astype(np.float32).reshape(-1, self.choices)
        if self.exploration:
            evenly = random.random(len(logits)) < self.exploration
            logits = np.where(evenly[:, None] & (logits > 0.5 * NEVER), np.float32(0), logits)
        choice = np.empty((len(outputs), self.choices), np.float32)
        gumbel_argmax(logits, random.standard_exponential(logits.shape, np.float32), choice.reshape(-1))
        return choice

    def _logits(self, outputs: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Return the logits of each choice in a row of its own, ``[N * choices, width]``."""
        logits = outputs if mask is None else np.where(mask != 0, outputs, np.float32(NEVER))
        if self._present is not None:
            padded = np.full((len(logits), self.choices, self._width), NOWHERE, np.float32)
            padded[:, self._present] = logits
            logits = padded
        return np.ascontiguousarray(logits).reshape(-1, self._width)

    def actions(self, choice: np.ndarray) -> np.ndarray:
        """Return ``[N, ...]`` in the space's own numbering."""
        actions = choice.astype(self._dtype)
        if self._shifted:
            actions += self._start
        return actions.reshape(-1, *self._shape)

    def probabilities(self, outputs: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Return the probability of each of the n values of a single choice, ``[N, n]``; exactly 0 where masked."""
        logits = outputs.astype(np.float64) if mask is None else np.where(mask != 0, outputs, -np.inf)
        weights = np.exp(logits - logits.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)

    def evaluate(
        self, outputs: torch.Tensor, parameters: torch.Tensor, choice: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``Distribution``."""
        logits = self._padded(outputs, mask)
        log_probs = functional.log_softmax(logits, -1)
        each = log_probs.gather(-1, choice.long().unsqueeze(-1)).squeeze(-1)
        if self.exploration:
            # a lane that does not act may have no allowed action
            even = self.exploration / (logits > 0.5 * NEVER).sum(-1).clamp(min=1)
            each = ((1 - self.exploration) * each.exp() + even).log()
        log_prob = each.sum(-1)
        return log_prob, -(log_probs.exp() * log_probs).sum((-2, -1))

    def _padded(self, outputs: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Return the logits of each choice, ``[N, choices, width]``."""
        logits = outputs if mask is None else outputs.masked_fill(mask == 0, NEVER)
        if self._present is None:
            return logits.view(-1, self.choices, self._width)
        padded = logits.new_full((len(logits), self.choices, self._width), NOWHERE)
        padded[:, torch.from_numpy(self._present).to(logits.device)] = logits
        return padded

    def divergence(self, outputs: torch.Tensor, others: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Return KL(outputs, others) ``[N]``, differentiable in ``outputs``."""
        own, other = (functional.log_softmax(self._padded(each, mask), -1) for each in (outputs, others))
        return (own.exp() * (own - other)).sum((-2, -1))

    def divergence_gradient(self, outputs: np.ndarray, others: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Return the gradient of the divergence by ``outputs``, ``[N, outputs]``: p (log p - log q - KL)."""

        def log_probs(numbers: np.ndarray) -> np.ndarray:
            logits = self._logits(numbers, mask)
            shifted = logits - logits.max(1, keepdims=True)
            return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))

        own = log_probs(outputs)
        probabilities, ratios = np.exp(own), own - log_probs(others)
        slope = probabilities * (ratios - (probabilities * ratios).sum(1, keepdims=True))
        slope = self._of_outputs(slope, len(outputs))
        return slope if mask is None else slope * (mask != 0)

    def _of_outputs(self, by_logits: np.ndarray, count: int) -> np.ndarray:
        """Return gradients ``[N * choices, width]`` as those of the outputs, ``[N, outputs]``."""
        if self.choices == 1:
            return by_logits
        by_choice = by_logits.reshape(-1, self.choices, self._width)
        return by_choice[:, slice(None) if self._present is None else self._present].reshape(count, -1)

    def differentiate(
        self, outputs: np.ndarray, parameters: np.ndarray, choice: np.ndarray, mask: np.ndarray | None
    ) -> LogProbEntropy:
        """See ``Distribution``."""
        logits, chosen = self._logits(outputs, mask), np.ascontiguousarray(choice).reshape(-1)
        log_p = np.empty_like(logits)
        log_prob, entropy = np.empty((2, len(logits)), np.float32)
        log_softmax(logits, chosen, log_p, log_prob, entropy)
        share = None  # share of the network's distribution in the probability of the choice
        if self.exploration:
            allowed = np.add.reduce(logits > 0.5 * NEVER, 1)
            own = (1 - self.exploration) * np.exp(log_prob)
            mixed = (own + self.exploration / np.maximum(allowed, 1)).astype(np.float32)
            log_prob, share = np.log(mixed), own / mixed

        def backward(by_log_prob: np.ndarray, by_entropy: float) -> tuple[np.ndarray, np.ndarray]:
            each = by_log_prob if self.choices == 1 else by_log_prob.repeat(self.choices)
            if share is not None:
                each = each * share
            by_outputs = np.empty_like(log_p)
            log_softmax_backward(log_p, chosen, entropy, each, by_entropy, by_outputs)
            by_outputs = self._of_outputs(by_outputs, len(outputs))
            return (by_outputs if mask is None else by_outputs * (mask != 0)), parameters

        if self.choices == 1:
            return LogProbEntropy(log_prob, entropy, backward)
        shape = (-1, self.choices)
        return LogProbEntropy(log_prob.reshape(shape).sum(1), entropy.reshape(shape).sum(1), backward)


class Bernoulli:
    """Independent binary choices: MultiBinary."""

    def __init__(self, space: gym_spaces.MultiBinary) -> None:
        """Read the shape from the space."""
        self._shape = space.shape
        self._dtype = space.dtype
        self.outputs = self.choices = math.prod(space.shape)
        self.parameters: list[float] = []
        self.flags = 0

    def sample(
        self,
        outputs: np.ndarray,
        parameters: np.ndarray,
        mask: np.ndarray | None,
        random: np.random.Generator,
        deterministic: bool,
    ) -> np.ndarray:
        """See ``Distribution``; the logits are compared with the log odds of a uniform number."""
        if deterministic:
            return (outputs > 0).astype(np.float32)
        level = random.random(outputs.shape)
        return (outputs > np.log(level) - np.log1p(-level)).astype(np.float32)

    def actions(self, choice: np.ndarray) -> np.ndarray:
        """Return ``[N, ...]`` of 0 and 1."""
        return choice.astype(self._dtype).reshape(-1, *self._shape)

    def evaluate(
        self, outputs: torch.Tensor, parameters: torch.Tensor, choice: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``Distribution``."""
        normaliser = functional.softplus(outputs)
        log_prob = (choice * outputs - normaliser).sum(-1)
        return log_prob, (normaliser - torch.sigmoid(outputs) * outputs).sum(-1)

    def differentiate(
        self, outputs: np.ndarray, parameters: np.ndarray, choice: np.ndarray, mask: np.ndarray | None
    ) -> LogProbEntropy:
        """See ``Distribution``; with p the sigmoid of a logit x, the derivatives are choice - p and -x p (1 - p)."""
        normaliser = np.logaddexp(np.float32(0), outputs)
        p = np.exp(outputs - normaliser)

        def backward(by_log_prob: np.ndarray, by_entropy: float) -> tuple[np.ndarray, np.ndarray]:
            by_outputs = by_log_prob[:, None] * (choice - p)
            return by_outputs - np.float32(by_entropy) * outputs * p * (1 - p), parameters

        return LogProbEntropy((choice * outputs - normaliser).sum(-1), (normaliser - p * outputs).sum(-1), backward)
