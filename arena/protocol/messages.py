"""Messages between the root and the other ranks: small, pickled, never on the step path."""

from collections.abc import Mapping
from typing import Any, NamedTuple


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


class CheckpointPart(NamedTuple):
    """First worker of a group to root: the player's part of checkpoint ``number`` is on disk."""

    number: int
    player: str
    steps: int
    updates: int


class LogLine(NamedTuple):
    """Any rank to root: a line for ``arena.log``. ``level`` is a name of the ``logging`` module."""

    rank: int
    level: str
    text: str


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
    pending_restarts: dict[str, "Restart"] = {}  # noqa: RUF012 (never changed)


class Job(NamedTuple):
    """Root to environment process, and from there to the match's workers: what the match plays next for the league.

    Attributes:
      id: of the job in the league; each later job of a match has a greater one.
      player: the active player that owns the match.
      sides: the players of each side; place i of a side belongs to its player i (and round again).
      weights: player -> weights file, for every player of the sides but ``player`` itself.
      policies: player -> name of its policy in ``RunConfig.policies``, for the same players.
      train: whether ``player`` learns from the job; otherwise it acts from ``weights`` like the others.
      episodes: number of episodes that count.
      num_envs: number of environment copies that play; None for all.
      settings: overrides of the environment's settings.
      options: for the environment's resets, or None.
      forward: settings of acting (``eps``: of exploration).
      data: settings of data handling.
    """

    id: int
    player: str
    sides: tuple[tuple[str, ...], ...]
    weights: dict[str, str]
    policies: dict[str, str]
    train: bool
    episodes: int
    num_envs: int | None
    settings: dict[str, Any]
    options: dict[str, Any] | None
    forward: dict[str, Any]
    data: dict[str, Any]


class JobOfWorker(NamedTuple):
    """Worker to its learner: the job that its episodes belong to from here on."""

    job: Job


class Published(NamedTuple):
    """First worker of a league player's group to root: its current weights are in a file.

    Attributes:
      path: the file, relative to the run directory.
      steps: transition steps of the player in the run when they were written.
      restarts: number of the player's restarts by then.
      finished: whether its budget is spent: no more snapshots or restarts follow.
    """

    player: str
    path: str
    steps: int
    restarts: int
    finished: bool = False


class Restart(NamedTuple):
    """Root to the first worker of a league player's group: restart from these weights at the next update.

    Attributes:
      path: of the weights, relative to the run directory or absolute.
      number: the player's number of restarts once this one is carried out.
      snapshot: id of the player's own snapshot that it is rolled back to; None for a reset to its first weights. A
        rollback restores the optimizer, and leaves schedules where they are.
      has_state: whether the training state lies beside the weights. The root decides, so that all ranks load the same.
    """

    path: str
    number: int
    snapshot: str | None = None
    has_state: bool = False


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

    order: "WriteCheckpoint | None"
    writers: dict[str, int]


class SaveState(NamedTuple):
    """Root to a member of a group, in a run that is about to end early: send its state, or write it.

    Attributes:
      order: the checkpoint to write the player's state into; None requests a ``SurvivorState``.
    """

    order: "WriteCheckpoint | None" = None


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


class MatchGivenUp(NamedTuple):
    """Environment process to root: its environment has failed too often, and the match has ended.

    Attributes:
      text: description of the last failure.
    """

    match: int
    text: str


class CloseMatch(NamedTuple):
    """Root to environment process: end the match at the next exchange."""


class WriteCheckpoint(NamedTuple):
    """Root to the first worker of each group: write checkpoint ``number`` after the next update.

    Attributes:
      last: whether no update follows, so that the weights are kept as a snapshot.
    """

    number: int
    directory: str
    last: bool = False


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


class Gather(NamedTuple):
    """Worker to the worker of its group that has external games: all other workers are ready for an update.

    A worker steps its environment until its rollout is full. External games arrive at a pace of their own, so their
    worker takes part with the experience that it has.

    Attributes:
      update: the number of the update.
    """

    update: int


class FilmRequest(NamedTuple):
    """Group leader to root: a film of this player is due; the weights are its snapshot after these steps.

    Attributes:
      player: name of the player.
      steps: transition steps.
    """

    player: str
    steps: int


class GatewayOpen(NamedTuple):
    """Environment process to root: the gateway accepts external games.

    Attributes:
      match: index of the match in the plan.
      url: address that it listens on.
    """

    match: int
    url: str


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
