"""The running episodes of a match, one in each copy, and reports of the finished ones to the root."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from arena.common.errors import ConfigError
from arena.environment.episodes.job_queue import JobQueue, Lineup
from arena.envs.interface import Timestep
from arena.protocol.messages import Episode, Episodes

REPORT_EVERY = 1.0
"""Seconds between two reports of finished episodes."""


class RunningEpisode:
    """The running episode of one copy.

    Attributes:
      last: the timestep of the last step that was not steady; None before the first reset.
      plain: return value of Gymnasium's step in a steady step since then (``arena.environment.fast_step``); None
        elsewhere.
    """

    __slots__ = ("began", "idle", "last", "length", "lineup", "over", "plain", "returns", "settings")

    def __init__(self) -> None:
        self.over = True  # the first exchange resets
        self.last: Timestep | None = None
        self.plain: tuple | None = None
        self.length = 0
        self.lineup: Lineup | None = None
        self.settings: dict[str, Any] = {}  # the league's overrides of the environment's settings

    def begin(self, timestep: Timestep) -> None:
        """Begin with the timestep of a reset."""
        self.over = False
        self.last, self.plain = timestep, None
        self.length = 0
        self.returns = [0.0] * len(timestep.rewards)
        self.idle = [0] * len(timestep.rewards)  # steps in which each entity did not act
        self.began = time.time()

    @property
    def timestep(self) -> Timestep | None:
        """The timestep of the last step; None before the first reset."""
        if self.plain is None or self.last is None:
            return self.last
        observation, reward, _, _, info = self.plain
        return self.last._replace(observations=(observation,), rewards=(float(reward),), infos=(info,))


class RunningEpisodes:
    """The running episode of each copy.

    Attributes:
      by_env: the running episodes, by copy.
      stepped: episodes that stepped, to be counted once the seats are served.
      steps_at_end: steps of players at the end of this exchange; None if no episode has ended in it.
    """

    def __init__(
        self,
        match: int,
        copies: int,
        players: Sequence[str],
        job_queue: JobQueue | None,
        post: Callable[[Episodes], None],
        log: logging.Logger,
    ) -> None:
        """Create the episodes, none of which has begun.

        Args:
          match: index of the match.
          copies: number of copies.
          players: player of each entity.
          job_queue: jobs of a league.
          post: sends a message to the root.
          log: log of this rank.
        """
        self.by_env = [RunningEpisode() for _ in range(copies)]
        self.stepped: list[tuple[RunningEpisode, Timestep]] = []
        self._match, self._players, self._job_queue = match, tuple(players), job_queue
        self._post, self._log = post, log
        self._idle = [0] * len(self._players)  # steps so far in which each entity did not act
        self._learned_from = 0  # in a league: transition steps of the match's player in finished episodes
        self.steps_at_end: dict[str, int] | None = None
        self._over: list[Episode] = []
        self._for_jobs = 0
        self._steps_of_ended = self._steps_told = 0
        self._next_report = time.monotonic() + REPORT_EVERY

    def count(self) -> None:
        """Count the steps of the exchange. The seats need not wait for this, but the end of an episode does."""
        for running, timestep in self.stepped:
            assert running.last is not None  # a step follows a reset
            returns, acting, rewards = running.returns, running.last.acting, timestep.rewards
            if len(rewards) == 1:  # a loop takes twice as long
                returns[0] += rewards[0]
            else:
                for e, reward in enumerate(rewards):
                    returns[e] += reward
            if False in acting:
                for e, acts in enumerate(acting):
                    if not acts:
                        running.idle[e] += 1
                        self._idle[e] += 1
            running.length += 1
            running.last, running.plain = timestep, None
        self.stepped.clear()

    def finish(self, copy: int, timestep: Timestep, cause: str | None) -> None:
        """Finish the episode of a copy; ``cause`` is the reason of a truncation that is not the environment's own."""
        running = self.by_env[copy]
        running.over = True
        self._steps_of_ended += running.length
        lineup = running.lineup
        if lineup is not None:
            self._learned_from += _steps_learned_from(running)
        if self.steps_at_end is None:
            self.steps_at_end = {}
        now = time.time()
        self._over.append(
            Episode(
                match=self._match,
                copy=copy,
                length=running.length,
                seconds=now - running.began,
                players=self._players if lineup is None else lineup.players,
                returns=tuple(map(float, running.returns)),
                lengths=tuple([running.length - idle for idle in running.idle]),
                outcomes=tuple([info.get("outcome") for info in timestep.infos]),
                truncated=cause is not None or not any(timestep.terminated),
                cause=cause,
                ended_at=now,
                job=lineup.job.id if lineup is not None and lineup.job is not None and lineup.counts else None,
                sides=() if lineup is None else lineup.sides,
                steps=self.steps_at_end,
                metrics=metrics_of(timestep.infos),
            )
        )
        if self._job_queue is not None and lineup is not None and lineup.job is not None:
            self._for_jobs += lineup.counts
            if self._job_queue.finish(lineup):
                self._log.info("job %d is over; %d episodes for jobs so far", lineup.job.id, self._for_jobs)
                self.report()  # without delay: the root holds the next job of this match

    def fill_steps(self) -> None:
        """Fill the players' steps into the episodes that have ended in this exchange."""
        steps, self.steps_at_end = self.steps_at_end, None
        if steps is None:
            return
        if self._job_queue is not None:
            going_on = [_steps_learned_from(running) for running in self.by_env if not running.over]
            steps[self._players[0]] = self._learned_from + sum(going_on)
            return
        environment_steps = self._steps_of_ended + sum([running.length for running in self.by_env if not running.over])
        for player, idle in zip(self._players, self._idle, strict=True):
            steps[player] = steps.get(player, 0) + environment_steps - idle

    def report_if_due(self, now: float) -> None:
        """Report, at most once per second; ``now`` is on the monotonic clock."""
        if now > self._next_report:
            self.report()

    def report(self) -> None:
        """Report finished episodes and steps to the root."""
        self.fill_steps()
        steps = self._steps_of_ended + sum(running.length for running in self.by_env if not running.over)
        if self._over or steps > self._steps_told:
            self._post(Episodes(self._match, tuple(self._over), steps - self._steps_told))
            self._over, self._steps_told = [], steps
        self._next_report = time.monotonic() + REPORT_EVERY


def metrics_of(infos: Sequence[dict]) -> tuple[dict[str, float], ...]:
    """Return the metrics in the infos at the end of an episode, for each entity; empty if there are none.

    Raises:
      ConfigError: a metric is not a number with a name.
    """
    if not any("metrics" in info for info in infos):
        return ()
    by_entity = [info.get("metrics") or {} for info in infos]
    try:
        return tuple({str(name): float(value) for name, value in metrics.items()} for metrics in by_entity)
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(
            f'info["metrics"] at the end of an episode: expected numbers by name, such as {{"shortage": 12}}, found '
            f"{by_entity!r:.200}"
        ) from None


def _steps_learned_from(running: RunningEpisode) -> int:
    """Return the transition steps of the learning player in an episode of a league."""
    lineup = running.lineup
    if lineup is None or lineup.job is None or not lineup.job.train:
        return 0
    own = [e for e, player in enumerate(lineup.players) if player == lineup.job.player]
    return running.length * len(own) - sum([running.idle[e] for e in own])
