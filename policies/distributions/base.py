"""The interface of a distribution."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch


class LogProbEntropy(NamedTuple):
    """Log probabilities and entropies of N choices, and the gradient of a loss through them.

    Attributes:
      log_prob: ``[N]``.
      entropy: ``[N]``.
      backward: given the gradients of a loss with respect to ``log_prob`` ``[N]`` and each entropy (one number),
        returns those with respect to ``outputs`` ``[N, outputs]`` and ``parameters``; to be called once.
    """

    log_prob: np.ndarray
    entropy: np.ndarray
    backward: Callable[[np.ndarray, float], tuple[np.ndarray, np.ndarray]]


class Distribution(Protocol):
    """Interface of a distribution over N samples.

    Attributes:
      outputs: numbers per sample that the network provides.
      parameters: initial values of the learned parameters that do not depend on the observation.
      choices: numbers per choice.
      flags: size of the supported action mask, 0 for none.
    """

    outputs: int
    parameters: list[float]
    choices: int
    flags: int

    def sample(
        self,
        outputs: np.ndarray,
        parameters: np.ndarray,
        mask: np.ndarray | None,
        random: np.random.Generator,
        deterministic: bool,
    ) -> np.ndarray:
        """Return choices ``[N, choices]``; the mode if ``deterministic``."""

    def actions(self, choice: np.ndarray) -> Any:
        """Return choices ``[N, choices]`` as members of the space: an array ``[N, ...]`` or a nest of them."""

    def evaluate(
        self, outputs: torch.Tensor, parameters: torch.Tensor, choice: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log probabilities ``[N]`` and entropies ``[N]``, differentiable in ``outputs`` and ``parameters``."""

    def differentiate(
        self, outputs: np.ndarray, parameters: np.ndarray, choice: np.ndarray, mask: np.ndarray | None
    ) -> LogProbEntropy:
        """Return the result of ``evaluate`` on arrays, with gradients in closed form."""
