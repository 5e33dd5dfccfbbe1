"""Agents with a model and a buffer of the user's own: `RemoteTrainer` learns from what their actor pushes."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from arena.common.errors import ConfigError
from arena.gateway.remote import RemoteModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


class RemoteTrainer(Protocol):
    """What a user writes to learn from replays that actors push: ``policies.<name>.use: file.py:Class``.

    The worker calls ``train`` and takes one step of it after the other. After each one it publishes the model's weights
    to the gateway, counts, and writes checkpoints where they are due. The budget of the run counts replays.
    """

    @classmethod
    def make_model(cls, **settings: Any) -> "nn.Module":
        """Return the model that actors ask as ``agent.remote_model``, from the settings of the policy."""

    def __init__(self, model: "nn.Module", buffer: Any, group: Any, **settings: Any) -> None:
        """Prepare to learn.

        Args:
          model: what ``make_model`` has returned, with the weights of the checkpoint that a resumed run goes on from.
          buffer: an iterable of batches of replays, arrays ``[batch_size, ...]`` by the names that were pushed. Each
            replay comes once, in the order of arrival. ``batch_size`` is that of the settings, 64 without.
          group: all workers of the player, see the guide "Write a policy".
          settings: of the policy.
        """

    def train(self) -> "Iterator[dict[str, float]]":
        """Learn; yield the metrics of each update."""


class RemoteBuffer:
    """Where an actor pushes replays of its games. What is pushed while nothing learns is dropped.

    The first push decides on names, dtypes and shapes.
    """

    def __init__(self, name: str, send: Callable[[Mapping[str, np.ndarray]], bool] | None = None) -> None:
        """Prepare to push.

        Args:
          name: of the player, for messages.
          send: sends a replay to the worker; False where it has no room. None where nothing learns.
        """
        self._name, self._send = name, send
        self._expected: dict[str, tuple[np.dtype, tuple[int, ...]]] | None = None

    def push(self, *replays: Mapping[str, Any]) -> int:
        """Give replays to the trainer; return how many were taken: the others found no room.

        Args:
          replays: names to arrays or numbers, without a batch axis.

        Raises:
          ValueError: a replay has other names, dtypes or shapes than the first one.
        """
        found = [{name: np.asarray(value) for name, value in replay.items()} for replay in replays]
        for replay in found:
            kinds = {name: (array.dtype, array.shape) for name, array in replay.items()}
            if self._expected is None:
                self._expected = kinds
            elif kinds != self._expected:
                expected, other = _described(self._expected), _described(kinds)
                raise ValueError(f"buffer of {self._name!r}: expected {expected}, as first pushed, found {other}")
        return sum(self._send(replay) for replay in found) if self._send is not None else 0


def _described(kinds: Mapping[str, tuple[np.dtype, tuple[int, ...]]]) -> str:
    return "{" + ", ".join(f"{name}: {dtype} {list(shape)}" for name, (dtype, shape) in sorted(kinds.items())) + "}"


def make_remote_model(player: str, policy_class: Any, settings: Mapping[str, Any]) -> RemoteModel:
    """Return the model of a player whose class is a ``RemoteTrainer``.

    Raises:
      ConfigError: the class refuses its settings.
    """
    try:
        return RemoteModel(player, policy_class.make_model(**settings))
    except TypeError as error:
        raise ConfigError(f"policies.{player}.settings: {policy_class.__name__}.make_model: {error}") from error


class RemoteLink:
    """The way between a gateway and the worker whose trainer learns from its games.

    Attributes:
      model: that the actors ask.
      buffer: that they push to.
      version: how many replays the model had learned from.
      dropped: replays for which the worker had no room.
    """

    def __init__(self, player: str, policy_class: Any, settings: Mapping[str, Any], rank: int) -> None:
        """Build the model.

        Args:
          player: name of the player.
          policy_class: a ``RemoteTrainer``.
          settings: of the policy.
          rank: of the worker.
        """
        self.player, self.rank = player, rank
        self.model = make_remote_model(player, policy_class, settings)
        self.buffer = RemoteBuffer(player, self._send)
        self.version, self.dropped = "0", 0
        self._capacity = int(settings.get("capacity", CAPACITY))
        self._waiting: list[Mapping[str, np.ndarray]] = []
        self._sent = self._taken = 0
        self.ready = False

    def _send(self, replay: Mapping[str, np.ndarray]) -> bool:
        if self._sent + len(self._waiting) - self._taken >= self._capacity:
            self.dropped += 1
            return False
        self._waiting.append(replay)
        return True

    def replays(self) -> dict[str, np.ndarray] | None:
        """Return what was pushed since the last call, arrays ``[N, ...]`` by name; None where it is nothing."""
        if not self._waiting:
            return None
        waiting, self._waiting = self._waiting, []
        self._sent += len(waiting)
        return {name: np.stack([replay[name] for replay in waiting]) for name in waiting[0]}

    def update(self, version: int, taken: int, weights: Mapping[str, np.ndarray]) -> None:
        """Take the worker's weights, and how many replays it has taken from what was sent."""
        import torch

        self.model.load({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
        self.version, self._taken, self.ready = str(version), taken, True


CAPACITY = 10_000
"""Replays on their way to a trainer, and not taken by it yet, unless its settings say ``capacity``."""
