"""What processes tell the root, and what the root answers: small, pickled, never on the step path."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Episode(NamedTuple):
    """One finished episode of one environment copy.

    Attributes:
      match: index of the match in the plan.
      copy: index of the environment copy inside the match.
      length: environment steps.
      seconds: wall time from its first to its last step.
      players: name of the player of each entity, in entity order.
      returns: undiscounted return of each entity, in entity order.
      lengths: transition steps of each entity (turn-based entities act less often than the episode is long).
      outcomes: ``info["outcome"]`` of each entity where the environment gave one, else None.
      truncated: whether the episode was cut rather than terminated.
      cause: why it was cut, where that is not the environment's own limit: ``"reset_by:<seat>"``, ``"fault:<what>"``.
      ended_at: Unix time of its last step.
      job: id of the league's job that it was played for; None in a table, and where it was played to fill time.
      sides: for each side of the job, its entities in this episode.
      steps: of each player, the transition steps that it has taken in the match by the end of the exchange in which the
        episode ended; a league's opponents, which the match does not know, are not there.
      late: whether the league leaves it out, since one of its players has started anew meanwhile (the root finds out).
      metrics: ``info["metrics"]`` of each entity, numbers by name; empty where the environment gave none to anybody.
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
        """Whether an accident has ended it: such an episode is recorded and counts nowhere."""
        return self.cause is not None and self.cause.startswith("fault")

    @property
    def counted(self) -> bool:
        """Whether it is in the league's payoff."""
        return self.job is not None and not self.faulted and not self.late


class Episodes(NamedTuple):
    """Environment process to root, about once a second: the episodes that ended since the last report."""

    match: int
    episodes: tuple[Episode, ...]
    environment_steps: int


class LoggedScalar(NamedTuple):
    """What one worker of a policy that runs itself has logged under one name.

    Attributes:
      name: of the scalar.
      call: the how manieth call with this name it was in the worker's round, from 1.
      value: the number.
      steps: transition steps of the player in the run, taking the other workers to be as far as this one.
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
    """Worker to root: how far a player is. Learning groups report once per update, through their first worker.

    Attributes:
      player: name of the player.
      worker: rank of the sender inside its group; ``pooled`` reports come from worker 0.
      steps: transition steps so far in this run; of the whole group if ``pooled``, else of the sender alone.
      updates: gradient updates so far.
      pooled: whether ``steps`` counts the whole group.
      metrics: scalars of the update, by name (``loss/policy``, ``kl``, ...).
      logged: what a policy that runs itself has logged since the last report.
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


class Note(NamedTuple):
    """Any rank to root: a line for ``arena.log``. ``level`` is a name of the ``logging`` module."""

    rank: int
    level: str
    text: str


class Failure(NamedTuple):
    """Any rank to root: this rank cannot go on.

    Attributes:
      user_error: True for a ConfigError: ``text`` is shown alone and the exit code is 2.
      text: the message, or the traceback.
      hang: whether it has waited in vain.
    """

    rank: int
    host: str
    role: str
    player: str | None
    user_error: bool
    text: str
    hang: bool = False


class RankReady(NamedTuple):
    """First worker of a group to root, once per round: how its player takes part.

    Attributes:
      learns: whether it learns in this round (a match lasts until all its learning players have finished).
      act_learn: whether the worker drives it update by update (so that it can stop together at an update).
    """

    player: str
    workers: int
    learns: bool
    act_learn: bool


class RoundStart(NamedTuple):
    """Root to all, at the start of a round.

    Attributes:
      number: of the round; -1 says that there is none left and the run is over.
      checkpoint: directory to load players from, or None.
      sources: player -> the player whose weights it starts from, where that is not itself.
      steps: transition steps that each player has taken in this round already (a resumed round).
      steps_before: transition steps that each player took in earlier rounds.
      updates: gradient updates that each player has made so far.
      restarts: how often the league has restarted each player, and after how many steps the last time.
      pending_restarts: player -> the restart that it was told of and has not carried out yet.
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
    """Root to environment process, and from there to the match's workers: what the league has the match play next.

    Attributes:
      id: of the job in the league; each later job of a match has a greater one.
      player: the active player whose match it is.
      sides: the players of each side; place i of a side belongs to its player i (and round again).
      weights: player -> its weights file, for everybody on the sides who is not ``player`` itself.
      policies: player -> the name of its policy in ``RunConfig.policies``, for the same ones.
      train: whether ``player`` learns from it; where it does not, it is played from ``weights`` like the other ones.
      episodes: how many count.
      num_envs: how many copies of the environment play; None for all.
      settings: over the environment's settings.
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
    """Worker to its learner: the job that its episodes are played for from here on."""

    job: Job


class Published(NamedTuple):
    """First worker of a league player's group to root: its present weights are in a file.

    Attributes:
      path: the file, relative to the run directory.
      steps: transition steps of the player in the run, when they were written.
      restarts: how often the player had been restarted by then.
      finished: whether its budget is spent: it is neither frozen nor restarted after that.
    """

    player: str
    path: str
    steps: int
    restarts: int
    finished: bool = False


class Restart(NamedTuple):
    """Root to the first worker of a league player's group: begin anew from these weights at the next update.

    Attributes:
      path: of the weights, relative to the run directory or absolute.
      number: how many restarts the player will then have seen.
    """

    path: str
    number: int


class SurvivorState(NamedTuple):
    """Any rank to root, after another one has died: what could be saved from it.

    Attributes:
      round: the number of the round that it was in; -1 for none.
      player: whose replica of weights and optimizer it has; None for none.
      learns: whether that player learns.
      act_learn: whether ``steps`` counts those of the whole group.
      steps, updates: of the player, as far as this rank knows.
      metrics: of the last update, whose report may be lost.
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
    """Root to all, after a rank has died: who writes what into the checkpoint that the others go on from.

    Attributes:
      order: the checkpoint; None where there cannot be one.
      writers: player -> the rank whose replica counts.
    """

    order: "WriteCheckpoint | None"
    writers: dict[str, int]


class SaveState(NamedTuple):
    """Root to a member of a group, in a run that is about to end early: send its state, or write it.

    Attributes:
      order: the checkpoint to write the player's state into; None asks for a ``SurvivorState``.
    """

    order: "WriteCheckpoint | None" = None


class StateSaved(NamedTuple):
    """Member of a group to root: the state of its player is written, as ``SaveState`` has asked."""

    player: str


class NotWritten(NamedTuple):
    """Member of a group to root: something could not be written.

    Attributes:
      what: a phrase for it.
      reason: of the system.
    """

    what: str
    reason: str


class MatchGivenUp(NamedTuple):
    """Environment process to root: its environment has failed too often, and the match has ended.

    Attributes:
      text: what has failed.
    """

    match: int
    text: str


class CloseMatch(NamedTuple):
    """Root to environment process: end the match at the next exchange."""


class WriteCheckpoint(NamedTuple):
    """Root to the first worker of each group: write checkpoint ``number`` after the next update.

    Attributes:
      last: whether the players rest after it, so that their weights are kept for good.
    """

    number: int
    directory: str
    last: bool = False


class ExperienceTotals(NamedTuple):
    """Learner to root, once at its end: what has become of its workers' rollouts in the round.

    Attributes:
      player: whose they are.
      learner: number of the learner.
      learners: how many the player has.
      sent: rollouts that the workers have sent.
      learned: those that were learned from.
      dropped: the others: they came after the last update, or from before a restart.
      greatest_lag: the most versions by which the weights that acted were behind, of what was learned from.
    """

    player: str
    learner: int
    learners: int
    sent: int
    learned: int
    dropped: int
    greatest_lag: int


class Gather(NamedTuple):
    """Worker to a worker of its group whose games are outside: all others are ready for an update.

    A worker steps its environment until it has enough to learn from, and so do the others of its group. But a game
    outside comes when it comes: its worker takes part with what it has.

    Attributes:
      update: the number of the update.
    """

    update: int


class GatewayOpen(NamedTuple):
    """Environment process to root: games outside may come.

    Attributes:
      match: index of the match in the plan.
      url: where its port is.
    """

    match: int
    url: str


class Replays(NamedTuple):
    """Gateway to a worker whose policy is a ``RemoteTrainer``: what actors have pushed.

    Attributes:
      arrays: ``[N, ...]`` by name.
    """

    arrays: Mapping[str, Any]


class RemoteWeights(NamedTuple):
    """Such a worker to its gateway, after each update.

    Attributes:
      player: whose they are.
      version: how many replays the player has learned from.
      taken: replays of this gateway that the trainer has taken.
      weights: arrays by name.
    """

    player: str
    version: int
    taken: int
    weights: Mapping[str, Any]


class RunFailed(NamedTuple):
    """Root to gateways: the run is about to be aborted; clients that wait are to be told."""


class StopLearning(NamedTuple):
    """Root to the first worker of each group: stop learning together at the next update, and play on."""


class RoundOver(NamedTuple):
    """Any busy rank to root: its part in the round is over; nothing more comes from it in this round.

    Attributes:
      loaded_torch: whether torch is among its modules (root and environment processes must stay without).
    """

    rank: int
    role: str
    loaded_torch: bool
