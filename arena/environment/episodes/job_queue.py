"""Line-ups of a match's episodes: constant in a table, one job after the other in a league.

Every episode has a line-up: the player of each entity. Its number is sent with each copy's observations, so that
workers can select the player that acts without another message.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from arena.config.table import Seat
from arena.protocol.league import Job
from arena.protocol.lineup import lineup_number, seats_of_sides


class Lineup(NamedTuple):
    """Assignment of players to the entities of an episode.

    Attributes:
      number: number of the line-up, see ``arena.protocol.lineup``.
      job: the job; None in a table.
      counts: whether the episode is one of those that the job requests (else it fills the time until the next job).
      players: the player of each entity.
      sides: entities of each side of the job.
    """

    number: int
    job: Job | None
    counts: bool
    players: tuple[str, ...]
    sides: tuple[tuple[int, ...], ...]


class JobQueue:
    """The jobs of one match.

    An episode belongs to the job that was current when it began. Whether it counts is decided then, too: counting the
    episodes that end first would favour short ones.
    """

    def __init__(self, seats: Sequence[Seat], entities: int) -> None:
        """Start without a job.

        Args:
          seats: seats of the match.
          entities: number of the environment's entities.
        """
        self._seats, self._entities = seats, entities
        self._waiting: deque[Job] = deque()
        self._job: Job | None = None
        self._begun = 0
        self._turn = 0
        self._left: dict[int, int] = {}  # job -> episodes that count and have not ended

    @property
    def job(self) -> Job | None:
        """The current job."""
        return self._job

    def add(self, job: Job) -> None:
        """Queue a job, which starts once the one before it has begun all its episodes."""
        self._waiting.append(job)
        self._left[job.id] = job.episodes

    def finish(self, lineup: Lineup) -> bool:
        """Count a finished episode; return whether it was the last one that counts for its job."""
        if lineup.job is None or not lineup.counts:
            return False
        self._left[lineup.job.id] -= 1
        if self._left[lineup.job.id]:
            return False
        del self._left[lineup.job.id]
        return True

    def ready(self) -> bool:
        """Return whether an episode can begin."""
        return self._job is not None or bool(self._waiting)

    def next(self, copy: int) -> Lineup | None:
        """Return the line-up of a copy's next episode; None if the job leaves the copy idle."""
        if self._waiting and (self._job is None or self._begun >= self._job.episodes):
            self._job, self._begun = self._waiting.popleft(), 0
        job = self._job
        assert job is not None, "an episode was to begin before the first job had come"
        if job.num_envs is not None and copy >= job.num_envs:
            return None
        counts = self._begun < job.episodes
        self._begun += 1
        turn, self._turn = self._turn % len(job.sides), self._turn + 1
        players = ["(random)"] * self._entities
        sides = []
        for side, seat in enumerate(seats_of_sides(len(job.sides), turn)):
            for place, entity in enumerate(self._seats[seat].entities):
                players[entity] = job.sides[side][place % len(job.sides[side])]
            sides.append(self._seats[seat].entities)
        return Lineup(lineup_number(job.id, turn), job, counts, tuple(players), tuple(sides))
