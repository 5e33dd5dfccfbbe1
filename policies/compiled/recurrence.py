"""Compiled loops of LSTM and GRU over time steps, forward and backward; and the torch functions around them.

A torch graph of a rollout costs ten times its arithmetic: some twenty small operations per time step.

Arrays are C-contiguous float32, time and lanes first: T time steps, N lanes, H the width. Gates are concatenated in the
last axis. ``read`` is the projection of the features, with its bias; ``recall`` is the weight ``[gates H, H]`` of the
previous hidden state; ``keep`` is 0 at an episode start, else 1.
"""

from typing import Any

import numpy as np
import torch

from arena.policies.compiled.layers import tanh
from arena.tensors.numba_jit import compiled

_F = np.float32


@compiled(
    "void(float32[:, :, ::1], float32[:, ::1], float32[::1], float32[:, ::1], float32[:, ::1], float32[:, ::1],"
    " float32[:, :, ::1], float32[:, :, ::1], float32[:, :, ::1], float32[:, :, ::1])"
)
def lstm_forward(
    read: np.ndarray,
    recall: np.ndarray,
    bias: np.ndarray,
    keep: np.ndarray,
    hidden: np.ndarray,
    cell: np.ndarray,
    gates: np.ndarray,
    before: np.ndarray,
    cells: np.ndarray,
    hiddens: np.ndarray,
) -> None:
    """Compute an LSTM (Hochreiter and Schmidhuber, 1997, with the forget gates of Gers et al., 2000) over T steps.

    Args:
      read: ``[T, N, 4H]``: input gate, forget gate, new, output gate.
      recall: ``[4H, H]``.
      bias: ``[4H]``, added to the projection of the hidden state.
      keep: ``[T, N]``.
      hidden: ``[N, H]``, before the first step.
      cell: ``[N, H]``, likewise.
      gates: ``[T, N, 4H]``, written: their activations.
      before: ``[T, N, H]``, written: the previous hidden state of each step.
      cells: ``[T, N, H]``, written: cell states.
      hiddens: ``[T, N, H]``, written: hidden states.
    """
    steps, lanes, width = hiddens.shape
    for t in range(steps):
        for i in range(lanes):
            for j in range(width):
                before[t, i, j] = hidden[i, j] * keep[t, i]
        np.dot(before[t], recall.T, gates[t])
        for i in range(lanes):
            gate = gates[t, i]
            for j in range(4 * width):
                gate[j] += read[t, i, j] + bias[j]
            for j in range(2 * width):
                gate[j] = _F(0.5) * tanh(_F(0.5) * gate[j]) + _F(0.5)
            for j in range(2 * width, 3 * width):
                gate[j] = tanh(gate[j])
            for j in range(3 * width, 4 * width):
                gate[j] = _F(0.5) * tanh(_F(0.5) * gate[j]) + _F(0.5)
            for j in range(width):
                cells[t, i, j] = gate[width + j] * cell[i, j] * keep[t, i] + gate[j] * gate[2 * width + j]
            for j in range(width):
                hiddens[t, i, j] = gate[3 * width + j] * tanh(cells[t, i, j])
        hidden, cell = hiddens[t], cells[t]


@compiled(
    "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, :, ::1], float32[:, :, ::1],"
    " float32[:, :, ::1], float32[:, :, ::1])"
)
def lstm_backward(
    recall: np.ndarray,
    keep: np.ndarray,
    cell: np.ndarray,
    gates: np.ndarray,
    cells: np.ndarray,
    by_hiddens: np.ndarray,
    by_gates: np.ndarray,
) -> None:
    """Write the gradients with respect to the gates' inputs.

    Args:
      recall: as in ``lstm_forward``, like all arguments without a description here.
      keep: likewise.
      cell: likewise.
      gates: likewise.
      cells: likewise.
      by_hiddens: ``[T, N, H]``, the loss's gradient with respect to the hidden states.
      by_gates: ``[T, N, 4H]``, written.
    """
    steps, lanes, width = by_hiddens.shape
    by_hidden, by_cell = np.zeros((lanes, width), _F), np.zeros((lanes, width), _F)
    for t in range(steps - 1, -1, -1):
        earlier = cells[t - 1] if t else cell
        for i in range(lanes):
            gate, by_gate, kept = gates[t, i], by_gates[t, i], keep[t, i]
            for j in range(width):
                enter, forget, new, leave = gate[j], gate[width + j], gate[2 * width + j], gate[3 * width + j]
                lit = tanh(cells[t, i, j])
                slope = by_hidden[i, j] + by_hiddens[t, i, j]
                by_gate[3 * width + j] = slope * lit * leave * (_F(1) - leave)
                slope = by_cell[i, j] + slope * leave * (_F(1) - lit * lit)
                by_gate[j] = slope * new * enter * (_F(1) - enter)
                by_gate[width + j] = slope * earlier[i, j] * kept * forget * (_F(1) - forget)
                by_gate[2 * width + j] = slope * enter * (_F(1) - new * new)
                by_cell[i, j] = slope * forget * kept
        np.dot(by_gates[t], recall, by_hidden)
        for i in range(lanes):
            for j in range(width):
                by_hidden[i, j] *= keep[t, i]


@compiled(
    "void(float32[:, :, ::1], float32[:, ::1], float32[::1], float32[:, ::1], float32[:, ::1],"
    " float32[:, :, ::1], float32[:, :, ::1], float32[:, :, ::1])"
)
def gru_forward(
    read: np.ndarray,
    recall: np.ndarray,
    bias: np.ndarray,
    keep: np.ndarray,
    hidden: np.ndarray,
    gates: np.ndarray,
    before: np.ndarray,
    hiddens: np.ndarray,
) -> None:
    """Compute a GRU (Cho et al., 2014, in the form that cuDNN and torch compute) over T steps.

    Args:
      read: ``[T, N, 3H]``: reset gate, update gate, new.
      recall: ``[3H, H]``.
      bias: ``[3H]``, added to the projection of the hidden state.
      keep: ``[T, N]``.
      hidden: ``[N, H]``, before the first step.
      gates: ``[T, N, 4H]``, written: activations of reset, update and new; and new's projection before its reset.
      before: ``[T, N, H]``, written: the previous hidden state of each step.
      hiddens: ``[T, N, H]``, written: hidden states.
    """
    steps, lanes, width = hiddens.shape
    recalled = np.empty((lanes, 3 * width), _F)
    for t in range(steps):
        for i in range(lanes):
            for j in range(width):
                before[t, i, j] = hidden[i, j] * keep[t, i]
        np.dot(before[t], recall.T, recalled)
        for i in range(lanes):
            gate = gates[t, i]
            for j in range(2 * width):
                gate[j] = _F(0.5) * tanh(_F(0.5) * (recalled[i, j] + bias[j] + read[t, i, j])) + _F(0.5)
            for j in range(width):
                gate[3 * width + j] = recalled[i, 2 * width + j] + bias[2 * width + j]
            for j in range(width):
                gate[2 * width + j] = tanh(read[t, i, 2 * width + j] + gate[j] * gate[3 * width + j])
            for j in range(width):
                new, update = gate[2 * width + j], gate[width + j]
                hiddens[t, i, j] = new + update * (before[t, i, j] - new)
        hidden = hiddens[t]


@compiled(
    "void(float32[:, ::1], float32[:, ::1], float32[:, :, ::1], float32[:, :, ::1], float32[:, :, ::1],"
    " float32[:, :, ::1], float32[:, :, ::1])"
)
def gru_backward(
    recall: np.ndarray,
    keep: np.ndarray,
    gates: np.ndarray,
    before: np.ndarray,
    by_hiddens: np.ndarray,
    by_read: np.ndarray,
    by_recalled: np.ndarray,
) -> None:
    """Write the gradients with respect to the gates' inputs.

    Args:
      recall: as in ``gru_forward``, like all arguments without a description here.
      keep: likewise.
      gates: likewise.
      before: likewise.
      by_hiddens: ``[T, N, H]``, the loss's gradient with respect to the hidden states.
      by_read: ``[T, N, 3H]``, written: with respect to the projection of the features.
      by_recalled: ``[T, N, 3H]``, written: with respect to the projection of the hidden state.
    """
    steps, lanes, width = by_hiddens.shape
    by_hidden, direct = np.zeros((lanes, width), _F), np.empty((lanes, width), _F)
    for t in range(steps - 1, -1, -1):
        for i in range(lanes):
            gate, by_read_here, by_recalled_here = gates[t, i], by_read[t, i], by_recalled[t, i]
            for j in range(width):
                reset, update, new = gate[j], gate[width + j], gate[2 * width + j]
                slope = by_hidden[i, j] + by_hiddens[t, i, j]
                direct[i, j] = slope * update
                by_update = slope * (before[t, i, j] - new) * update * (_F(1) - update)
                by_new = slope * (_F(1) - update) * (_F(1) - new * new)
                by_reset = by_new * gate[3 * width + j] * reset * (_F(1) - reset)
                by_read_here[j] = by_recalled_here[j] = by_reset
                by_read_here[width + j] = by_recalled_here[width + j] = by_update
                by_read_here[2 * width + j] = by_new
                by_recalled_here[2 * width + j] = by_new * reset
        np.dot(by_recalled[t], recall, by_hidden)
        for i in range(lanes):
            for j in range(width):
                by_hidden[i, j] = (by_hidden[i, j] + direct[i, j]) * keep[t, i]


class CompiledLSTM(torch.autograd.Function):
    """``lstm_forward`` for CPU tensors; gradients flow into all but ``keep`` and the state before the first step."""

    @staticmethod
    def forward(
        ctx: Any, read: torch.Tensor, recall: torch.Tensor, bias: torch.Tensor, keep: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return hidden states ``[T, N, H]`` and the last state, given ``state`` ``[N, 2, H]``."""
        steps, lanes, gates = read.shape
        hidden, cell = state.unbind(1)
        activations = read.new_empty(steps, lanes, gates)
        before, cells, hiddens = read.new_empty(3, steps, lanes, gates // 4).unbind(0)
        lstm_forward(*_arrays(read, recall, bias, keep, hidden, cell, activations, before, cells, hiddens))
        ctx.save_for_backward(recall, keep, cell, activations, before, cells)
        after = torch.stack((hiddens[-1], cells[-1]), 1)
        ctx.mark_non_differentiable(after)
        return hiddens, after

    @staticmethod
    def backward(ctx: Any, by_hiddens: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients with respect to ``read``, ``recall`` and ``bias``."""
        recall, keep, cell, activations, before, cells = ctx.saved_tensors
        by_gates = torch.empty_like(activations)
        lstm_backward(*_arrays(recall, keep, cell, activations, cells, by_hiddens, by_gates))
        return by_gates, *_by_recall(by_gates, before), None, None


class CompiledGRU(torch.autograd.Function):
    """``gru_forward`` for CPU tensors; gradients flow into all but ``keep`` and the state before the first step."""

    @staticmethod
    def forward(
        ctx: Any, read: torch.Tensor, recall: torch.Tensor, bias: torch.Tensor, keep: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return hidden states ``[T, N, H]`` and the last state, given ``state`` ``[N, 1, H]``."""
        steps, lanes, gates = read.shape
        width = gates // 3
        activations = read.new_empty(steps, lanes, 4 * width)
        before, hiddens = read.new_empty(2, steps, lanes, width).unbind(0)
        gru_forward(*_arrays(read, recall, bias, keep, state.squeeze(1), activations, before, hiddens))
        ctx.save_for_backward(recall, keep, activations, before)
        after = hiddens[-1].unsqueeze(1).clone()
        ctx.mark_non_differentiable(after)
        return hiddens, after

    @staticmethod
    def backward(ctx: Any, by_hiddens: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients with respect to ``read``, ``recall`` and ``bias``."""
        recall, keep, activations, before = ctx.saved_tensors
        shape = *before.shape[:2], 3 * before.shape[2]
        by_read, by_recalled = before.new_empty(2, *shape).unbind(0)
        gru_backward(*_arrays(recall, keep, activations, before, by_hiddens, by_read, by_recalled))
        return by_read, *_by_recall(by_recalled, before), None, None


def _arrays(*tensors: torch.Tensor) -> list[np.ndarray]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


def _by_recall(by_recalled: torch.Tensor, before: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients with respect to the recurrent weight and bias, given ``by_recalled`` ``[T, N, gates H]``."""
    flat = by_recalled.flatten(0, 1)
    return flat.T @ before.flatten(0, 1), flat.sum(0)
