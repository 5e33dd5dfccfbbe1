"""Default sizes of an update of ``ppo``: its transitions, and its gradient steps; without torch."""

from typing import Literal, NamedTuple


class UpdateSize(NamedTuple):
    """Sizes of an update of ``ppo``.

    Attributes:
      horizon: time steps of each copy.
      minibatches: minibatches in an epoch.
      epochs: passes over the rollout.
      usual_minibatch: transitions in a minibatch by default.
    """

    horizon: int
    minibatches: int
    epochs: int
    usual_minibatch: int


class OwnSizes(NamedTuple):
    """Sizes as a file has them: ``auto`` or None where they are left to the defaults.

    Attributes:
      horizon, minibatches, epochs: as in ``UpdateSize``.
      minibatch_size: transitions in a minibatch.
    """

    horizon: int | Literal["auto"]
    minibatches: int | None
    minibatch_size: int | None
    epochs: int | None


class TaskKind(NamedTuple):
    """Properties of a task that default sizes depend on.

    Attributes:
      changing_players: whether other players of the matches change.
      long: whether observations have images, or the networks a memory.
      several: whether a copy has several lanes: their transitions resemble each other.
    """

    changing_players: bool
    long: bool
    several: bool


class Defaults(NamedTuple):
    """Default sizes for a kind of task.

    Attributes:
      transitions: transitions of all lanes of a group in an update.
      minibatch: transitions in a minibatch.
      most_minibatches: largest number of minibatches in an epoch. If copies collect more in an update, minibatches are
        larger: each costs the group a reduction, which more workers do not make cheaper.
      epochs: passes over the rollout.
    """

    transitions: int
    minibatch: int
    most_minibatches: int
    epochs: int


ALONE = Defaults(transitions=2048, minibatch=64, most_minibatches=32, epochs=10)

LONG = ALONE._replace(minibatch=256, epochs=4)

CHANGING = Defaults(transitions=4096, minibatch=1024, most_minibatches=4, epochs=4)
"""Where other players change, transitions are evidence about the opponents of today.

320 gradient steps on 2,048 of them settle on an answer to these opponents, and lose the entropy to answer the next
ones. ``benchmarks.league_strength`` compares sizes.
"""

SHORTEST_HORIZON = 32
"""Smallest default horizon, however many copies there are: the advantages of a shorter rollout consist of bootstrapped
values for the most part (a lambda of 0.95 averages over 20 steps)."""

LONG_HORIZON = 128
"""Default horizon of images and memories."""


def resolve_size(own: OwnSizes, kind: TaskKind, lanes: int) -> UpdateSize:
    """Return the sizes of an update, with the defaults resolved.

    Args:
      own: sizes of the file.
      kind: what the defaults depend on.
      lanes: number of lanes of all workers of the player together.
    """
    defaults = CHANGING if kind.changing_players else LONG if kind.long else ALONE
    if own.horizon != "auto":
        horizon = own.horizon
    else:
        horizon = LONG_HORIZON if kind.long else max(SHORTEST_HORIZON, defaults.transitions // lanes)
    minibatches = own.minibatches or max(1, round(horizon * lanes / (own.minibatch_size or defaults.minibatch)))
    if own.minibatches is None and own.minibatch_size is None:
        minibatches = min(minibatches, defaults.most_minibatches)
    epochs = own.epochs or (LONG.epochs if kind.several else defaults.epochs)
    return UpdateSize(horizon, minibatches, epochs, defaults.minibatch)
