"""What an environment process plays: in a table the same seats for ever, in a league one job after the other.

Every episode has a line-up: who plays which entity. A line-up has a number, which travels with each copy's record, so
that workers know whose turn it is to act without a message of its own.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from arena.config.table import Seat
from arena.protocol.lineup import lineup_number, seats_of_sides
from arena.protocol.messages import Job


class Lineup(NamedTuple):
    """Who plays an episode.

    Attributes:
      number: see the module's text.
      job: the job; None in a table.
      counts: whether the episode is one of those that the job asks for (else it fills the time until the next job).
      players: the player of each entity.
      sides: for each side of the job its entities.
    """

    number: int
    job: Job | None
    counts: bool
    players: tuple[str, ...]
    sides: tuple[tuple[int, ...], ...]


class JobQueue:
    """The jobs of one match.

    An episode belongs to the job that was current when it began. Which episodes count is decided then, too: to count
    those that end first would favour short ones.
    """

    def __init__(self, seats: Sequence[Seat], entities: int) -> None:
        """Start without a job.

        Args:
          seats: of the match.
          entities: how many the environment has.
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
        """Take a job for when the one before it has begun all its episodes."""
        self._waiting.append(job)
        self._left[job.id] = job.episodes

    def finish(self, lineup: Lineup) -> bool:
        """Note that an episode has ended; return whether it was the last one that counts for its job."""
        if lineup.job is None or not lineup.counts:
            return False
        self._left[lineup.job.id] -= 1
        if self._left[lineup.job.id]:
            return False
        del self._left[lineup.job.id]
        return True

    def ready(self) -> bool:
        """Whether there is something to play."""
        return self._job is not None or bool(self._waiting)

    def next(self, copy: int) -> Lineup | None:
        """Return who plays the next episode of a copy; None where the job leaves that copy idle."""
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
