"""Messages of a league: jobs, published weights, restarts."""

from typing import Any, NamedTuple


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
