"""Messages of gateways, where games outside are served."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class GatewayOpen(NamedTuple):
    """Environment process to root: the gateway accepts external games.

    Attributes:
      match: index of the match in the plan.
      url: address that it listens on.
    """

    match: int
    url: str


class Gather(NamedTuple):
    """Worker to the worker of its group that has external games: all other workers are ready for an update.

    A worker steps its environment until its rollout is full. External games arrive at a pace of their own, so their
    worker takes part with the experience that it has.

    Attributes:
      update: the number of the update.
    """

    update: int


class Replays(NamedTuple):
    """Gateway to a worker with a ``RemoteTrainer``: replays that actors have pushed.

    Attributes:
      arrays: ``[N, ...]`` by name.
    """

    arrays: Mapping[str, Any]


class RemoteWeights(NamedTuple):
    """Worker with a ``RemoteTrainer`` to its gateway: its weights after an update.

    Attributes:
      player: name of the player.
      version: number of replays that the player has learned from.
      taken: number of this gateway's replays that the trainer has taken.
      weights: arrays by name.
    """

    player: str
    version: int
    taken: int
    weights: Mapping[str, Any]


class RunFailed(NamedTuple):
    """Root to gateways: the run is about to be aborted; notify clients that wait."""
