"""The object ``group`` of policies with a loop of their own: all workers of one player."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from arena.common.errors import ConfigError
from arena.comms import GroupChannel

if TYPE_CHECKING:  # a policy that does without torch is not made to load it
    import torch

    from arena.tensors.gradients import FlatGradient


class Group:
    """Collective calls among the workers of one player. All workers make the same calls in the same order.

    A worker whose ``run`` has returned takes part with zeros until its match is over, so that no worker waits for it.
    When the match of one member ends, the others' next call raises ``MatchOver``.

    Attributes:
      rank: this worker's number in the group, from 0.
      size: number of workers.
      learn: of the policy, where it has one.
      updates: how often gradients were averaged so far; of several models, those of the one that had it most often.
    """

    def __init__(self, channel: GroupChannel, log: Callable[[dict[str, float]], None]) -> None:
        self.rank, self.size = channel.rank, channel.size
        self.sum_in_place = channel.sum_in_place
        self.zeros, self.average_in_place = channel.zeros, channel.average_in_place
        self._broadcast_in_place = channel.broadcast_in_place
        self._log = log
        self._gradients: WeakKeyDictionary[torch.nn.Module, FlatGradient] = WeakKeyDictionary()
        self._averaged: WeakKeyDictionary[torch.nn.Module, int] = WeakKeyDictionary()
        self.updates = 0
        self.learn: Callable[[dict[str, Any]], Any] = _cannot_learn

    def average_gradients(self, model: "torch.nn.Module", weight: float = 1.0) -> None:
        """Replace every parameter's ``.grad`` by its mean over the group, weighted by ``weight``.

        Call it between ``backward`` and the optimizer's step. If the number of samples differs between
        workers, pass it as the weight. A parameter without a gradient counts as zeros.
        """
        flat = self._gradients.get(model)
        if flat is None:
            from arena.tensors.gradients import FlatGradient

            flat = self._gradients[model] = FlatGradient(model.parameters())
        else:
            flat.gather()
        flat.average(self, weight)
        self._averaged[model] = averaged = self._averaged.get(model, 0) + 1
        self.updates = max(self.updates, averaged)

    def broadcast(self, model: "torch.nn.Module") -> None:
        """Give every worker the parameters and buffers of worker 0; call it once after construction."""
        import torch

        with torch.no_grad():
            for tensor in model.state_dict().values():
                array = np.ascontiguousarray(tensor.detach().cpu().numpy()).reshape(-1)
                if array.size:
                    array = array.copy()
                    self._broadcast_in_place(array)
                    tensor.copy_(torch.from_numpy(array).view_as(tensor))

    def sum(self, x: Any) -> Any:
        """Return the sum of ``x`` (a number or an array) over the workers, in float64."""
        array = np.array(x, np.float64, ndmin=1)
        self.sum_in_place(array)
        return float(array[0]) if np.ndim(x) == 0 else array.reshape(np.shape(x))

    def mean(self, x: Any) -> Any:
        """Return the mean of ``x`` (a number or an array) over the workers that are still running."""
        array = np.append(np.array(x, np.float64).reshape(-1), 1.0)
        self.sum_in_place(array)
        values = array[:-1] / array[-1]
        return float(values[0]) if np.ndim(x) == 0 else values.reshape(np.shape(x))

    def all(self, flag: bool) -> bool:
        """Return whether ``flag`` is true on every worker; branch around a collective on this, never on ``flag``."""
        return self.sum(0.0 if flag else 1.0) == 0.0

    def log(self, **scalars: float) -> None:
        """Record scalars under this player's name: each call is a row, the mean over the workers that make it.

        Not a collective call: each worker counts its calls of each name, and calls of equal number are averaged.
        """
        self._log({name: float(value) for name, value in scalars.items()})

    def send_experience(self, batch: Mapping[str, Any]) -> None:
        """Have the class's ``learn(batch)`` learn from arrays ``[N, ...]`` by name; metrics that it returns are logged.

        With ``learners`` that is done elsewhere, with the batches of all workers behind each other, and this returns
        at once unless the worker is ``max_lag`` updates ahead. Else it is done here, on this worker's batch.
        """
        metrics = self.learn(dict(batch))
        if metrics:
            self.log(**metrics)

    def pull_weights(self, model: Any = None) -> bool:
        """Load the learner's newest weights; return whether they are newer than those of the last call.

        Args:
          model: what has a ``load_state_dict`` for what the class's ``weights()`` (else its ``state_dict()``) returns;
            None takes the policy itself. Without ``learners`` nothing is to be loaded.
        """
        return False


def _cannot_learn(batch: Mapping[str, Any]) -> None:
    raise ConfigError("group.send_experience: expected a policy with learn(batch), found none")
