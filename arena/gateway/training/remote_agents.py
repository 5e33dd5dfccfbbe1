"""Agents with a model and a buffer of the user's own: `RemoteTrainer` learns from replays that their actor pushes."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from arena.common.errors import ConfigError
from arena.gateway.remote import RemoteModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


class RemoteTrainer(Protocol):
    """Interface of a user's trainer on replays of actors: ``policies.<name>.use: file.py:Class``.

    The worker iterates ``train`` step by step. After each step it publishes the model's weights to the gateway, counts,
    and writes checkpoints when due. The budget of the run counts replays.
    """

    @classmethod
    def make_model(cls, **settings: Any) -> "nn.Module":
        """Return the model that actors query as ``agent.remote_model``, from the settings of the policy."""

    def __init__(self, model: "nn.Module", buffer: Any, group: Any, **settings: Any) -> None:
        """Prepare to learn.

        Args:
          model: result of ``make_model``, with the weights of the checkpoint that a resumed run continues from.
          buffer: an iterable of batches of replays, arrays ``[batch_size, ...]`` by the names that were pushed. Each
            replay occurs once, in the order of arrival. ``batch_size`` is that of the settings, 64 by default.
          group: all workers of the player, see the guide "Write a policy".
          settings: settings of the policy.
        """

    def train(self) -> "Iterator[dict[str, float]]":
        """Learn; yield the metrics of each update."""


class RemoteBuffer:
    """Buffer for replays of an actor's games. Replays are dropped while nothing learns.

    The first push determines names, dtypes and shapes.
    """

    def __init__(self, name: str, send: Callable[[Mapping[str, np.ndarray]], bool] | None = None) -> None:
        """Prepare to push.

        Args:
          name: name of the player in messages.
          send: sends a replay to the worker; returns False if it has no room. None if nothing learns.
        """
        self._name, self._send = name, send
        self._expected: dict[str, tuple[np.dtype, tuple[int, ...]]] | None = None

    def push(self, *replays: Mapping[str, Any]) -> int:
        """Pass replays to the trainer; return how many were accepted: the others found no room.

        Args:
          replays: names to arrays or numbers, without a batch axis.

        Raises:
          ValueError: names, dtypes or shapes of a replay differ from those of the first one.
        """
        rows = [{name: np.asarray(value) for name, value in replay.items()} for replay in replays]
        for row in rows:
            kinds = {name: (array.dtype, array.shape) for name, array in row.items()}
            if self._expected is None:
                self._expected = kinds
            elif kinds != self._expected:
                expected, actual = _described(self._expected), _described(kinds)
                raise ValueError(f"buffer of {self._name!r}: expected {expected}, as first pushed, found {actual}")
        return sum(self._send(row) for row in rows) if self._send is not None else 0


def _described(kinds: Mapping[str, tuple[np.dtype, tuple[int, ...]]]) -> str:
    return "{" + ", ".join(f"{name}: {dtype} {list(shape)}" for name, (dtype, shape) in sorted(kinds.items())) + "}"


def make_remote_model(player: str, policy_class: Any, settings: Mapping[str, Any]) -> RemoteModel:
    """Return the model of a player with a ``RemoteTrainer`` as class.

    Raises:
      ConfigError: the class rejects its settings.
    """
    try:
        return RemoteModel(player, policy_class.make_model(**settings))
    except TypeError as error:
        raise ConfigError(f"policies.{player}.settings: {policy_class.__name__}.make_model: {error}") from error


class RemoteLink:
    """Link between a gateway and the worker with a trainer that learns from its games.

    Attributes:
      model: model that the actors query.
      buffer: buffer that they push to.
      version: number of replays that the model has learned from.
      dropped: number of replays for which the worker had no room.
    """

    def __init__(self, player: str, policy_class: Any, settings: Mapping[str, Any], rank: int) -> None:
        """Build the model.

        Args:
          player: name of the player.
          policy_class: a ``RemoteTrainer``.
          settings: settings of the policy.
          rank: rank of the worker.
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
        """Return the replays pushed since the last call, arrays ``[N, ...]`` by name; None if there are none."""
        if not self._waiting:
            return None
        waiting, self._waiting = self._waiting, []
        self._sent += len(waiting)
        return {name: np.stack([replay[name] for replay in waiting]) for name in waiting[0]}

    def update(self, version: int, steps: int, weights: Mapping[str, np.ndarray]) -> None:
        """Load the worker's weights, and record the number of replays that it has taken."""
        import torch

        self.model.load({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
        self.version, self._taken, self.ready = str(version), steps, True


CAPACITY = 10_000
"""Default number of replays in flight to a trainer; its settings may set ``capacity``."""
