"""Messages about checkpoints, and about what is saved after a failure."""

from typing import NamedTuple


class CheckpointPart(NamedTuple):
    """First worker of a group to root: the player's part of checkpoint ``number`` is on disk."""

    number: int
    player: str
    steps: int
    updates: int


class WriteCheckpoint(NamedTuple):
    """Root to the first worker of each group: write checkpoint ``number`` after the next update.

    Attributes:
      last: whether no update follows, so that the weights are kept as a snapshot.
    """

    number: int
    directory: str
    last: bool = False


class SurvivorState(NamedTuple):
    """Any rank to root, after another rank has died: the state that this rank could save.

    Attributes:
      round: index of the round that the rank was in; -1 for none.
      player: the player of which it holds a replica of weights and optimizer; None for none.
      learns: whether that player learns.
      act_learn: whether ``steps`` counts those of the whole group.
      steps, updates: of the player, as counted by this rank.
      metrics: of the last update; its report may have been lost.
    """

    rank: int
    round: int = -1
    player: str | None = None
    learns: bool = False
    act_learn: bool = False
    steps: int = 0
    updates: int = 0
    metrics: dict[str, float] | None = None


class RecoveryOrder(NamedTuple):
    """Root to all, after a rank has died: the ranks that write the checkpoint from which the run continues.

    Attributes:
      order: the checkpoint; None if none can be written.
      writers: player -> the rank that writes its replica.
    """

    order: WriteCheckpoint | None
    writers: dict[str, int]


class SaveState(NamedTuple):
    """Root to a member of a group, in a run that is about to end early: send its state, or write it.

    Attributes:
      order: the checkpoint to write the player's state into; None requests a ``SurvivorState``.
    """

    order: WriteCheckpoint | None = None


class StateSaved(NamedTuple):
    """Member of a group to root: the state of its player is written, as ordered by ``SaveState``."""

    player: str


class NotWritten(NamedTuple):
    """Member of a group to root: a file could not be written.

    Attributes:
      what: phrase that names the file's content.
      reason: text of the system's error.
    """

    what: str
    reason: str
