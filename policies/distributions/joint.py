"""Independent distributions side by side."""

from typing import Any

import numpy as np
import torch

from arena.policies.distributions.base import Distribution, LogProbEntropy


class Joint:
    """Independent distributions side by side: Dict and Tuple, in the order of the space."""

    def __init__(self, parts: list[Distribution], keys: list[str] | None) -> None:
        """Create a joint distribution of one part for each item; ``keys`` names them for a Dict."""
        self._parts = parts
        self._keys = keys
        self.outputs = sum(part.outputs for part in parts)
        self.choices = sum(part.choices for part in parts)
        self.flags = sum(part.flags for part in parts)
        self.parameters = [value for part in parts for value in part.parameters]
        self._slices = []
        start = [0, 0, 0, 0]
        for part in parts:
            end = [
                a + b
                for a, b in zip(start, (part.outputs, len(part.parameters), part.choices, part.flags), strict=True)
            ]
            self._slices.append(tuple(slice(a, b) for a, b in zip(start, end, strict=True)))
            start = end

    def sample(
        self,
        outputs: np.ndarray,
        parameters: np.ndarray,
        mask: np.ndarray | None,
        random: np.random.Generator,
        deterministic: bool,
    ) -> np.ndarray:
        """See ``Distribution``; the parts sample independently."""
        choice = [
            part.sample(outputs[:, o], parameters[f], None if mask is None else mask[:, m], random, deterministic)
            for part, (o, f, _, m) in zip(self._parts, self._slices, strict=True)
        ]
        return np.concatenate(choice, -1)

    def actions(self, choice: np.ndarray) -> dict[str, Any] | tuple[Any, ...]:
        """Return a dict or a tuple of the actions of the parts."""
        members = [part.actions(choice[:, c]) for part, (_, _, c, _) in zip(self._parts, self._slices, strict=True)]
        return tuple(members) if self._keys is None else dict(zip(self._keys, members, strict=True))

    def evaluate(
        self, outputs: torch.Tensor, parameters: torch.Tensor, choice: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``Distribution``; log probabilities and entropies of independent parts are summed."""
        log_probs, entropies = zip(
            *(
                part.evaluate(outputs[:, o], parameters[f], choice[:, c], None if mask is None else mask[:, m])
                for part, (o, f, c, m) in zip(self._parts, self._slices, strict=True)
            ),
            strict=True,
        )
        return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)

    def differentiate(
        self, outputs: np.ndarray, parameters: np.ndarray, choice: np.ndarray, mask: np.ndarray | None
    ) -> LogProbEntropy:
        """See ``Distribution``; gradients of independent parts are concatenated."""
        parts = [
            part.differentiate(outputs[:, o], parameters[f], choice[:, c], None if mask is None else mask[:, m])
            for part, (o, f, c, m) in zip(self._parts, self._slices, strict=True)
        ]

        def backward(by_log_prob: np.ndarray, by_entropy: float) -> tuple[np.ndarray, np.ndarray]:
            by_outputs, by_free = zip(*(part.backward(by_log_prob, by_entropy) for part in parts), strict=True)
            return np.concatenate(by_outputs, 1), np.concatenate(by_free)

        log_probs, entropies = [part.log_prob for part in parts], [part.entropy for part in parts]
        return LogProbEntropy(np.sum(log_probs, 0), np.sum(entropies, 0), backward)
