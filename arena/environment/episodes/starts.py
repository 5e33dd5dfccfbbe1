"""Starts of a match's episodes, and their ends by faults."""

from dataclasses import replace

from arena.common.errors import ConfigError
from arena.env_manager.faults import FAILURES, Fault, NotANumberError, RetriesSpentError, fault_of
from arena.environment.episodes.job_queue import Lineup
from arena.environment.match import MatchState
from arena.envs.interface import Timestep
from arena.protocol.league import Job


class EpisodeStarts:
    """Begins the episodes of a match's copies."""

    def __init__(self, match: MatchState) -> None:
        """Begin no episode yet."""
        self._match = match
        self._running = match.episodes.by_env
        self._announced_job = -1

    def start(self, batch: int, copy: int) -> None:
        """Begin the next episode of a copy, unless the job leaves it idle."""
        started = self._match.started.pop(self._match.slices[batch].start + copy, None)
        if self.begin_start(batch, copy) if started is None else started:
            self.finish_start(batch, copy)

    def begin_start(self, batch: int, copy: int) -> bool:
        """Begin the reset of a copy, with the league's players; return False if the job leaves the copy idle."""
        match, number = self._match, self._match.slices[batch].start + copy
        options = None
        if match.job_queue is not None:
            lineup = match.job_queue.next(number)
            if lineup is None or lineup.job is None:
                match.writers[batch].write_idle(copy)
                return False
            self._apply_lineup(batch, copy, lineup, lineup.job)
            options = lineup.job.options
        match.copies.begin_reset(number, match.next_seed(number), options)
        return True

    def _apply_lineup(self, batch: int, copy: int, lineup: Lineup, job: Job) -> None:
        """Apply a job's settings to a copy, and write the number of the line-up into every observation message."""
        match, number = self._match, self._match.slices[batch].start + copy
        running = self._running[number]
        running.lineup = lineup
        if job.id > self._announced_job:
            self._announced_job = job.id
            for rank in match.setup.worker_ranks:
                match.services.mailbox.deliver(rank, job)
        if running.settings != job.settings:
            running.settings = job.settings
            settings = {**match.source.settings, **job.settings}
            match.copies.restart(number, replace(match.source, settings=settings))
        match.writers[batch].write_lineup(copy, lineup.number)

    def finish_start(self, batch: int, copy: int, final: Timestep | None = None) -> None:
        """Write the first observation of an episode; in same-step mode with the outcome of the ``final`` timestep."""
        match, number = self._match, self._match.slices[batch].start + copy
        while True:
            timestep = shown = match.copies.finish_reset(number)
            if final is not None:
                shown = shown._replace(rewards=final.rewards, terminated=final.terminated, truncated=final.truncated)
            try:
                match.writers[batch].write(copy, shown, started=True, over=final is not None)
                if match.writers[batch].has_state:
                    match.writers[batch].write_state(copy, timestep, started=True)
                match.writers[batch].check(copy)
                break
            except (ConfigError, RetriesSpentError):
                raise
            except FAILURES as error:  # a shape, a NaN, a mask without an action, or the global state
                match.copies.fail(number, fault_of(error, "reset"))
                match.copies.retry_reset(number)
        self._running[number].begin(timestep)
        match.fault_log.first.have_reset = True

    def restart(self, batch: int, copy: int, final: Timestep) -> None:
        """In same-step mode, begin the next episode within the step that ends one."""
        match, number = self._match, self._match.slices[batch].start + copy
        match.writers[batch].put_finals(copy, final)  # before the reset: the environment may reuse its arrays
        match.copies.begin_reset(number, match.next_seed(number), None)
        self.finish_start(batch, copy, final)


class EpisodeFaults:
    """Ends the episodes of copies that failed."""

    def __init__(self, match: MatchState, starts: EpisodeStarts) -> None:
        """Create it; ``starts`` restarts copies in same-step mode."""
        self._match, self._starts = match, starts

    def end_episode(self, batch: int, copy: int, fault: Fault) -> None:
        """End the episode of a failed copy in every seat's message; the next exchange begins another one."""
        match, number = self._match, self._match.slices[batch].start + copy
        match.copies.fail(number, fault)
        match.seeds[number] = match.manager.next_seed(number)
        final = match.truncated(match.episodes.by_env[number].timestep, {"restarted": fault.line})
        match.episodes.finish(number, final, f"fault:{fault.what}")
        if match.same_step:
            self._starts.restart(batch, copy, final)
        else:
            match.writers[batch].write(copy, final, started=False)
            match.writers[batch].zero_nan(copy)
        match.writers[batch].mark_void(copy)

    def end_nan_episodes(self, batch: int) -> None:
        """End the episodes of the copies whose observations contain NaN."""
        for copy in range(self._match.writers[batch].copies):
            try:
                self._match.writers[batch].check(copy)
            except NotANumberError as error:
                self.end_episode(batch, copy, fault_of(error, "step"))
