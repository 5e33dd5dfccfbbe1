"""Messages between the root and the other ranks: small, pickled, never on the step path."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from arena.protocol.league import Restart


class Episode(NamedTuple):
    """One finished episode of one environment copy.

    Attributes:
      match: index of the match in the plan.
      copy: index of the environment copy within the match.
      length: environment steps.
      seconds: wall time from its first to its last step.
      players: name of the player of each entity, in entity order.
      returns: undiscounted return of each entity, in entity order.
      lengths: transition steps of each entity (turn-based entities act less often than the episode is long).
      outcomes: ``info["outcome"]`` of each entity where the environment gave one, else None.
      truncated: whether the episode was truncated rather than terminated.
      cause: reason of a truncation that is not the environment's own limit: ``"reset_by:<seat>"``, ``"fault:<kind>"``.
      ended_at: Unix time of its last step.
      job: id of the league's job that the episode belongs to; None in a table, and for an episode that fills time.
      sides: for each side of the job, its entities in this episode.
      steps: player -> the transition steps that it has taken in the match by the end of the exchange in which the
        episode ended; without the opponents of a league, which the match does not count.
      late: whether the league ignores it because one of its players was restarted meanwhile (set by the root).
      metrics: ``info["metrics"]`` of each entity, numbers by name; empty where the environment returned none.
    """

    match: int
    copy: int
    length: int
    seconds: float
    players: tuple[str, ...]
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    outcomes: tuple[Any, ...]
    truncated: bool
    cause: str | None
    ended_at: float
    job: int | None = None
    sides: tuple[tuple[int, ...], ...] = ()
    steps: Mapping[str, int] = {}
    late: bool = False
    metrics: tuple[Mapping[str, float], ...] = ()

    @property
    def faulted(self) -> bool:
        """Whether a fault ended the episode: it is recorded and counts nowhere."""
        return self.cause is not None and self.cause.startswith("fault")

    @property
    def counted(self) -> bool:
        """Whether the episode enters the league's payoff."""
        return self.job is not None and not self.faulted and not self.late


class Episodes(NamedTuple):
    """Environment process to root, about once a second: the episodes that ended since the last report."""

    match: int
    episodes: tuple[Episode, ...]
    environment_steps: int


class LoggedScalar(NamedTuple):
    """A scalar that one worker of a custom-loop policy has logged.

    Attributes:
      name: of the scalar.
      call: number of the worker's calls with this name in the round, from 1.
      value: the number.
      steps: transition steps of the player in the run, assuming that its other workers are as far as this one.
      updates: gradient updates of the player so far.
      time: Unix time of the call.
    """

    name: str
    call: int
    value: float
    steps: int
    updates: int
    time: float


class Progress(NamedTuple):
    """Worker to root: the progress of a player. Learning groups report once per update, through their first worker.

    Attributes:
      player: name of the player.
      worker: rank of the sender inside its group; ``pooled`` reports come from worker 0.
      steps: transition steps so far in this run; of the whole group if ``pooled``, else of the sender alone.
      updates: gradient updates so far.
      pooled: whether ``steps`` counts the whole group.
      metrics: scalars of the update, by name (``loss/policy``, ``kl``, ...).
      logged: scalars that a custom-loop policy has logged since the last report.
    """

    player: str
    worker: int
    steps: int
    updates: int
    pooled: bool
    metrics: dict[str, float]
    logged: tuple[LoggedScalar, ...] = ()


class Finished(NamedTuple):
    """Worker to root: this worker's budget is spent (``run`` returned, or the group reached its steps together)."""

    player: str
    worker: int


class LogLine(NamedTuple):
    """Any rank to root: a line for ``arena.log``. ``level`` is a name of the ``logging`` module."""

    rank: int
    level: str
    text: str


class Printed(NamedTuple):
    """Any rank to root: one of the first lines that it has printed.

    Attributes:
      rank: the rank, by its number at the start.
      text: the line; empty if the rest of them is only in the file.
      file: file with all of them.
      node: number of the node whose ranks share the file; None if this rank has its own.
    """

    rank: int
    text: str
    file: str
    node: int | None = None


class Failure(NamedTuple):
    """Any rank to root: this rank cannot continue.

    Attributes:
      user_error: True for a ConfigError: ``text`` is shown alone and the exit code is 2.
      text: the message, or the traceback.
      hang: whether a wait has timed out.
    """

    rank: int
    host: str
    role: str
    player: str | None
    user_error: bool
    text: str
    hang: bool = False


class RankReady(NamedTuple):
    """First worker of a group to root, once per round: the way in which its player takes part.

    Attributes:
      learns: whether it learns in this round (a match lasts until all its learning players have finished).
      act_learn: whether the worker drives the policy update by update (so that the group can stop at an update).
    """

    player: str
    workers: int
    learns: bool
    act_learn: bool


class RoundStart(NamedTuple):
    """Root to all, at the start of a round.

    Attributes:
      number: index of the round; -1 if no round is left and the run is over.
      checkpoint: directory to load players from, or None.
      sources: player -> the player that provides its initial weights, where it is another one.
      steps: transition steps that each player has taken in this round already (a resumed round).
      steps_before: transition steps that each player took in earlier rounds.
      updates: gradient updates that each player has made so far.
      restarts: player -> number of its restarts by the league, and its steps at the latest one.
      pending_restarts: player -> the restart that was ordered and is not carried out yet.
    """

    number: int
    checkpoint: str | None
    sources: dict[str, str]
    steps: dict[str, int]
    steps_before: dict[str, int]
    updates: dict[str, int]
    restarts: dict[str, tuple[int, int]] = {}  # noqa: RUF012 (never changed)
    pending_restarts: dict[str, Restart] = {}  # noqa: RUF012 (never changed)


class MatchGivenUp(NamedTuple):
    """Environment process to root: its environment has failed too often, and the match has ended.

    Attributes:
      text: description of the last failure.
    """

    match: int
    text: str


class CloseMatch(NamedTuple):
    """Root to environment process: end the match at the next exchange."""


class ExperienceTotals(NamedTuple):
    """Learner to root, once at the end of the round: the fate of its workers' rollouts.

    Attributes:
      player: name of the player.
      learner: number of the learner.
      learners: number of learners of the player.
      sent: rollouts that the workers have sent.
      learned: rollouts that updates have used.
      dropped: the rest, which arrived after the last update or stem from before a restart.
      greatest_lag: largest lag, in versions, among the rollouts that updates have used.
    """

    player: str
    learner: int
    learners: int
    sent: int
    learned: int
    dropped: int
    greatest_lag: int


class FilmRequest(NamedTuple):
    """Group leader to root: a film of this player is due; the weights are its snapshot after these steps.

    Attributes:
      player: name of the player.
      steps: transition steps.
    """

    player: str
    steps: int


class StopLearning(NamedTuple):
    """Root to the first worker of each group: stop learning together at the next update, and continue to act."""


class RoundOver(NamedTuple):
    """Any busy rank to root: it has finished the round and sends no more messages in it.

    Attributes:
      loaded_torch: whether torch is among its modules (root and environment processes must stay without).
    """

    rank: int
    role: str
    loaded_torch: bool
