"""One flat buffer that all gradients are views of, so that a group averages them with a single reduction."""

from collections.abc import Iterable

import torch

from arena.policies.interface import Reducer


class FlatGradient:
    """The gradients of some parameters, and a few scalars that travel with them.

    The buffer is laid out as ``[gradients of all parameters | extras | weight]`` in float32. A parameter that got no
    gradient counts as zeros. On a device other than the CPU the reduction is staged through a pinned host buffer.

    Attributes:
      values: ``[P]``, all gradients in the order of the parameters; a view of the buffer.
      extras: ``[extras]``, scalars that are averaged with the same weights as the gradients; a view of the buffer.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], extras: int = 0) -> None:
        """Make every parameter's ``.grad`` a view of one new buffer; gradients that are already there stay."""
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        if not self._parameters:
            raise ValueError("expected at least one parameter that requires a gradient, found none")
        device = self._parameters[0].device
        size = sum(parameter.numel() for parameter in self._parameters)
        self._buffer = torch.zeros(size + extras + 1, dtype=torch.float32, device=device)
        self._host = self._buffer if device.type == "cpu" else torch.zeros_like(self._buffer, device="cpu").pin_memory()
        self._array = self._host.numpy()
        self.values = self._buffer[:size]
        self.extras = self._buffer[size : size + extras]
        self._views = []
        start = 0
        for parameter in self._parameters:
            self._views.append(self.values[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()
        self.gather()

    def zero(self) -> None:
        """Clear gradients and extras. Call it before every backward pass."""
        self._buffer.zero_()

    def gather(self) -> None:
        """Bring gradients home that were detached from the buffer, as ``optimizer.zero_grad`` does by default."""
        for parameter, view in zip(self._parameters, self._views, strict=True):
            if parameter.grad is view:
                continue
            if parameter.grad is None:
                view.zero_()
            else:
                view.copy_(parameter.grad)
            parameter.grad = view

    def average(self, group: Reducer, weight: float = 1.0) -> float:
        """Replace gradients and extras by their average over the group, each worker's counted ``weight`` times.

        The result is the same, bit for bit, on every worker: a decision may be taken on it. Where all weights are
        zero there is nothing to average, the buffer is zeros and so is the returned total.

        Args:
          group: whose workers all call this at the same time.
          weight: number of samples behind this worker's gradients; 0 for a worker that had none.

        Returns:
          The sum of all workers' weights.
        """
        if group.size == 1:
            if weight == 0:
                self._buffer.zero_()
            return float(weight)
        if weight != 1:
            self._buffer.mul_(weight)
        if self._host is not self._buffer:
            self._host.copy_(self._buffer)
        self._array[-1] = weight
        group.sum_in_place(self._array)
        if self._host is not self._buffer:
            self._buffer.copy_(self._host, non_blocking=True)
        total = float(self._array[-1])
        if total > 0:
            self._buffer.mul_(1 / total)  # half the time of a division
        return total
