"""Gradients in one flat buffer, so that a group averages them in a single reduction."""

from collections.abc import Iterable

import torch

from arena.tensors.reducer import Reducer


class FlatGradient:
    """The gradients of some parameters, and a few scalars that are averaged with them.

    The buffer is laid out as ``[gradients of all parameters | extras]`` in float32. A parameter without a gradient
    counts as zeros. On a device other than the CPU the reduction is staged through a host buffer.

    Attributes:
      values: ``[P]``, all gradients in the order of the parameters; a view of the buffer.
      extras: ``[extras]``, scalars that are averaged with the same weights as the gradients; a view of the buffer.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], extras: int = 0) -> None:
        """Make every parameter's ``.grad`` a view of one new buffer; existing gradients are kept."""
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        if not self._parameters:
            raise ValueError("expected at least one parameter that requires a gradient, found none")
        device = self._parameters[0].device
        self._size = sum(parameter.numel() for parameter in self._parameters)
        self._group: Reducer | None = None
        self._host: torch.Tensor | None = None
        self._settle(torch.zeros(self._size + extras, dtype=torch.float32, device=device))

    def _settle(self, buffer: torch.Tensor) -> None:
        """Make every parameter's ``.grad`` a view of a buffer."""
        self._buffer = buffer
        self.values, self.extras = buffer[: self._size], buffer[self._size :]
        sizes = [parameter.numel() for parameter in self._parameters]
        parts = self.values.split(sizes)
        self._views = [part.view_as(p) for part, p in zip(parts, self._parameters, strict=True)]
        self.gather()

    def join(self, group: Reducer) -> bool:
        """Prepare averaging over a group, in memory that its workers share if they can.

        Returns:
          Whether the buffer has moved: then ``values``, ``extras`` and every ``.grad`` are new tensors.
        """
        if group is self._group:
            return False
        self._group = group
        if group.size == 1:
            return False
        self._array = group.zeros(self._buffer.numel())
        memory = torch.from_numpy(self._array)
        if self._buffer.device.type != "cpu":
            self._host = memory
            return False
        memory.copy_(self._buffer)
        self._settle(memory)
        return True

    def zero(self) -> None:
        """Clear gradients and extras. Call it before every backward pass that adds to them."""
        self._buffer.zero_()

    def gather(self) -> None:
        """Copy gradients back into the buffer that were detached from it, as by ``optimizer.zero_grad``."""
        for parameter, view in zip(self._parameters, self._views, strict=True):
            if parameter.grad is view:
                continue
            if parameter.grad is None:
                view.zero_()
            else:
                view.copy_(parameter.grad)
            parameter.grad = view

    def average(self, group: Reducer, weight: float = 1.0) -> float:
        """Replace gradients and extras by their weighted average over the group.

        Each worker counts ``weight`` times.

        The result is bitwise equal on every worker, so that it may control a decision. If all weights are zero, the
        buffer and the returned total are zeros.

        Args:
          group: the group; all of its workers make this call.
          weight: number of samples behind this worker's gradients; 0 for a worker that had none.

        Returns:
          The sum of all workers' weights.
        """
        self.join(group)
        if group.size == 1:
            if weight == 0:
                self._buffer.zero_()
            return float(weight)
        if self._host is not None:
            self._host.copy_(self._buffer)
        total = group.average_in_place(self._array, weight)
        if self._host is not None:
            self._buffer.copy_(self._host)
        return total
