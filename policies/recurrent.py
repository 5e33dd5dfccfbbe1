"""Recurrent layers that reset their state at episode starts."""

import math

import torch
from torch import nn

from arena.policies.compiled.recurrence import CompiledGRU, CompiledLSTM

LONGEST = 128
"""Time steps after which the slowest element of a recurrent state decays to a third without input."""


class Recurrent(nn.Module):
    """A recurrent layer over T time steps of N lanes.

    Attributes:
      width: H, width of the hidden state.
      rows: vectors of that width in its state, the hidden state first.
      gates: vectors of that width that input and hidden state contribute in each time step.
      loops: autograd function that computes it on the CPU.
    """

    rows: int
    gates: int
    loops: type[CompiledLSTM | CompiledGRU]

    def __init__(self, inputs: int, width: int) -> None:
        """Initialise weights orthogonally, gate by gate, and biases for decays in 1 to ``LONGEST`` time steps."""
        super().__init__()
        self.width = width
        self.read = nn.Linear(inputs, self.gates * width)
        self.recall = nn.Linear(width, self.gates * width)
        for layer in (self.read, self.recall):
            nn.init.zeros_(layer.bias)
            for gate in layer.weight.detach().split(width):
                nn.init.orthogonal_(gate)
        # With zero biases half of the state is lost in each step, and no gradient reaches a cue of fifty steps ago. A
        # forget gate with a bias of log(k) keeps k / (k + 1) (Tallec and Ollivier, Can recurrent neural networks warp
        # time?, 2018). They sample k uniformly; here it grows geometrically from element to element, to cover short
        # spans too.
        spans = torch.linspace(0, math.log(LONGEST), width)
        with torch.no_grad():
            self.read.bias[width : 2 * width] = spans  # of an LSTM's forget gate, a GRU's update gate
            if self.gates == 4:  # an LSTM's element that decays slowly fills slowly; a GRU's update gate does both
                self.read.bias[:width] = -spans

    def forward(
        self, features: torch.Tensor, starts: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute T time steps in sequence.

        Args:
          features: ``[T, N, inputs]``.
          starts: ``[T, N]``, whether the observation is the first of an episode.
          state: ``[N, rows, H]``, before the first step; no gradient flows into it.

        Returns:
          The hidden states ``[T, N, H]``, and the state after the last step, without a gradient.
        """
        read = self.read(features)
        keep = (~starts).to(read.dtype)
        sequence = self.compiled if read.device.type == "cpu" else self.step_by_step
        return sequence(read, keep, state)

    def compiled(
        self, read: torch.Tensor, keep: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute ``forward`` by compiled loops, on the CPU.

        Args:
          read: ``[T, N, gates H]``, projection of the features.
          keep: ``[T, N]``, 0 where an episode starts, else 1.
          state: as in ``forward``.
        """
        return self.loops.apply(read, self.recall.weight, self.recall.bias, keep, state)

    def step_by_step(
        self, read: torch.Tensor, keep: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the same by torch, on any device."""
        hidden_states = []
        for t in range(len(read)):
            state = self._next(read[t], state * keep[t, :, None, None])
            hidden_states.append(state[:, 0])
        return torch.stack(hidden_states), state.detach()

    def step(self, features: torch.Tensor, starts: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the state ``[N, rows, H]`` after one step of features ``[N, inputs]``, in plain torch."""
        keep = (~starts).to(features.dtype)
        return self._next(self.read(features), state * keep[:, None, None])

    def _next(self, read: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the state ``[N, rows, H]`` after a step."""
        raise NotImplementedError


class LSTM(Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997); its state is the hidden and the cell state."""

    rows, gates, loops = 2, 4, CompiledLSTM

    def _next(self, read: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        hidden, cell = state.unbind(1)
        enter, forget, new, leave = (read + self.recall(hidden)).chunk(4, -1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
        return torch.stack((torch.sigmoid(leave) * torch.tanh(cell), cell), 1)


class GRU(Recurrent):
    """The gated recurrent unit (Cho et al., 2014)."""

    rows, gates, loops = 1, 3, CompiledGRU

    def _next(self, read: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        hidden = state[:, 0]
        reset, update, new = read.chunk(3, -1)
        by_reset, by_update, by_new = self.recall(hidden).chunk(3, -1)
        new = torch.tanh(new + torch.sigmoid(reset + by_reset) * by_new)
        return torch.lerp(new, hidden, torch.sigmoid(update + by_update)).unsqueeze(1)
