"""Recurrent layers that forget everything where an episode starts."""

import math

import torch
from torch import nn

from arena.policies.compiled.recurrence import CompiledGRU, CompiledLSTM

LONGEST = 128
"""Slots after which the slowest element of a new memory has faded to a third, when nothing is added."""


class Memory(nn.Module):
    """A recurrent layer over T slots of N lanes.

    Attributes:
      width: H, of its hidden state.
      rows: vectors of that width in its state, the hidden state first.
      gates: vectors of that width that are read and recalled for each slot.
      loops: what computes it on the CPU.
    """

    rows: int
    gates: int
    loops: type[CompiledLSTM | CompiledGRU]

    def __init__(self, inputs: int, width: int) -> None:
        """Initialise weights orthogonally, gate by gate, and biases so that elements fade in 1 to ``LONGEST`` slots."""
        super().__init__()
        self.width = width
        self.read = nn.Linear(inputs, self.gates * width)
        self.recall = nn.Linear(width, self.gates * width)
        for layer in (self.read, self.recall):
            nn.init.zeros_(layer.bias)
            for gate in layer.weight.detach().split(width):
                nn.init.orthogonal_(gate)
        # With biases of zero half of everything is gone after a slot, and no gradient reaches a cue of fifty slots ago.
        # A forget gate with a bias of log(k) keeps k / (k + 1) (Tallec and Ollivier, Can recurrent neural networks warp
        # time?, 2018). They draw k uniformly; here it grows from element to element by a factor, for short spans too.
        spans = torch.linspace(0, math.log(LONGEST), width)
        with torch.no_grad():
            self.read.bias[width : 2 * width] = spans  # of an LSTM's forget gate, a GRU's update gate
            if self.gates == 4:  # an LSTM's element that fades slowly fills slowly; a GRU's update gate does both
                self.read.bias[:width] = -spans

    def forward(
        self, features: torch.Tensor, starts: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read T slots one after the other.

        Args:
          features: ``[T, N, inputs]``.
          starts: ``[T, N]``, where the observation is the first of an episode.
          state: ``[N, rows, H]``, before the first slot; no gradient flows into it.

        Returns:
          The hidden states ``[T, N, H]``, and the state after the last slot, without a gradient.
        """
        read = self.read(features)
        keep = (~starts).to(read.dtype)
        sequence = self.compiled if read.device.type == "cpu" else self.slot_by_slot
        return sequence(read, keep, state)

    def compiled(
        self, read: torch.Tensor, keep: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute what ``forward`` returns by compiled loops, on the CPU.

        Args:
          read: ``[T, N, gates H]``, what comes from the features.
          keep: ``[T, N]``, 0 where an episode starts, else 1.
          state: as in ``forward``.
        """
        return self.loops.apply(read, self.recall.weight, self.recall.bias, keep, state)

    def slot_by_slot(
        self, read: torch.Tensor, keep: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the same by torch, on any device."""
        found = []
        for slot in range(len(read)):
            state = self._next(read[slot], state * keep[slot, :, None, None])
            found.append(state[:, 0])
        return torch.stack(found), state.detach()

    def step(self, features: torch.Tensor, starts: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the state ``[N, rows, H]`` after one slot of features ``[N, inputs]``, by torch; starts ``[N]``."""
        keep = (~starts).to(features.dtype)
        return self._next(self.read(features), state * keep[:, None, None])

    def _next(self, read: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the state ``[N, rows, H]`` after a slot."""
        raise NotImplementedError


class LSTM(Memory):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997); its state is the hidden and the cell state."""

    rows, gates, loops = 2, 4, CompiledLSTM

    def _next(self, read: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        hidden, cell = state.unbind(1)
        enter, forget, new, leave = (read + self.recall(hidden)).chunk(4, -1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
        return torch.stack((torch.sigmoid(leave) * torch.tanh(cell), cell), 1)


class GRU(Memory):
    """The gated recurrent unit (Cho et al., 2014)."""

    rows, gates, loops = 1, 3, CompiledGRU

    def _next(self, read: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        hidden = state[:, 0]
        reset, update, new = read.chunk(3, -1)
        by_reset, by_update, by_new = self.recall(hidden).chunk(3, -1)
        new = torch.tanh(new + torch.sigmoid(reset + by_reset) * by_new)
        return torch.lerp(new, hidden, torch.sigmoid(update + by_update)).unsqueeze(1)
