"""The jobs of a league that were launched and are not finished."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral
from typing import Any

logger = logging.getLogger(__name__)


class JobsInFlight:
    """Jobs by id, oldest first, with their number for each player that owns them.

    Attributes:
      next_id: id of the next job.
    """

    def __init__(self) -> None:
        self.next_id = 0
        self._jobs: dict[int, dict[str, Any]] = {}
        self._of_player: Counter[str] = Counter()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the jobs, oldest first."""
        return iter(self._jobs.values())

    def __contains__(self, job: Mapping[str, Any]) -> bool:
        """Return whether a job is in flight."""
        return job["job_id"] in self._jobs

    def count(self, player_id: str) -> int:
        """Return the number of jobs that a player owns."""
        return self._of_player[player_id]

    def add(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Add a job, and return it with an id."""
        added = {"job_id": self.next_id, **job}
        self.next_id += 1
        self._jobs[added["job_id"]] = added
        self._of_player[added["launch_player"]] += 1
        return added

    def remove(self, job: Mapping[str, Any]) -> None:
        """Remove a job."""
        del self._jobs[job["job_id"]]
        self._of_player[job["launch_player"]] -= 1

    def find(self, job_info: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the job of a report; None if it is not in flight, or has other sides: the log holds the reason."""
        job_id = job_info.get("job_id") if isinstance(job_info, Mapping) else None
        job = self._jobs.get(int(job_id)) if isinstance(job_id, Integral) else None
        if job is None:
            known = ", ".join(map(str, self._jobs)) or "none"
            logger.warning("a finished job was refused: expected one in flight (%s), found %r", known, job_id)
            return None
        for key in ("launch_player", "sides"):
            if key in job_info and job_info[key] != job[key]:
                logger.warning(
                    "a finished job was refused: expected %s %r for job %d, found %r",
                    key, job[key], job["job_id"], job_info[key],
                )  # fmt: skip
                return None
        return job

    def load(self, jobs: Iterable[dict[str, Any]], next_id: int) -> None:
        """Continue with the jobs of a saved league."""
        self._jobs = {job["job_id"]: job for job in jobs}
        self._of_player = Counter(job["launch_player"] for job in self._jobs.values())
        self.next_id = next_id
