"""The object ``group`` of custom-loop policies: all workers of one player."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from arena.common.errors import ConfigError
from arena.comms import GroupChannel
from arena.group.custom import numbers_of_log

if TYPE_CHECKING:  # a policy without torch does not load it
    import torch

    from arena.tensors.gradients import FlatGradient


class Group:
    """Collective calls among the workers of one player. All workers make the same calls in the same order.

    A worker that has returned from ``run`` contributes zeros until its match is over, so that no worker waits for it.
    When the match of one member ends, the others' next call raises ``MatchOver``.

    Attributes:
      rank: this worker's number in the group, from 0.
      size: number of workers.
      learn: the policy's ``learn``, if it has one.
      updates: number of averagings of gradients so far; with several models, that of the one averaged most often.
      has_model: whether a model was broadcast, which will be updated some time.
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
        self.has_model = False
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
        """Copy the parameters and buffers of worker 0 to every worker; call it once after construction."""
        import torch

        self.has_model = True
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

    def log(self, values: Mapping[str, Any] | None = None, /, **scalars: Any) -> None:
        """Record scalars under this player's name: each call is a row, the mean over the workers that make it.

        Not a collective call: each worker counts its calls of each name, and calls of equal number are averaged.

        Args:
          values: numbers by name, for names such as ``"loss/policy"``.
          **scalars: numbers by name.

        Raises:
          TypeError: a value is no number.
        """
        self._log(numbers_of_log(values, scalars))

    def send_experience(self, batch: Mapping[str, Any]) -> None:
        """Pass arrays ``[N, ...]`` by name to the class's ``learn(batch)``; the metrics that it returns are logged.

        With ``learners`` a learner calls it with the concatenated batches of all workers, and this returns without
        waiting unless the worker is ``max_lag`` updates ahead. Otherwise it is called here, with this worker's
        batch.
        """
        metrics = self.learn(dict(batch))
        if metrics:
            self.log(metrics)

    def pull_weights(self, model: Any = None) -> bool:
        """Load the learner's newest weights; return whether they are newer than those of the last call.

        Args:
          model: object with a ``load_state_dict`` for the result of the class's ``weights()`` (else its
            ``state_dict()``); None for the policy itself. Without ``learners`` nothing is loaded.
        """
        return False


def _cannot_learn(batch: Mapping[str, Any]) -> None:
    raise ConfigError("group.send_experience: expected a policy with learn(batch), found none")
