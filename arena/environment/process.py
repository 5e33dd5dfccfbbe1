"""The environment process: owns the copies of one match, steps them when all seats have acted, and replies."""

import time
from collections.abc import Callable, Sequence

from arena.common.errors import ConfigError
from arena.env_manager.faults import FAILURES, RetriesSpentError, fault_of
from arena.environment.async_batches import AsyncBatches
from arena.environment.episodes.first import NeverWorkedError
from arena.environment.episodes.resets import RequestedResets
from arena.environment.episodes.starts import EpisodeFaults, EpisodeStarts
from arena.environment.match import MatchState
from arena.environment.setup import MatchSetup, Services
from arena.protocol.league import Job
from arena.protocol.messages import CloseMatch, MatchGivenUp
from arena.protocol.wire import DONE, GIVEN_UP, MATCH_OVER

MAILBOX_INTERVAL = 0.05
"""Seconds between two polls of the mailbox: how long a match continues once the root has closed it."""


class EnvironmentProcess:
    """Serves one match until the root closes it."""

    def __init__(self, setup: MatchSetup, services: Services) -> None:
        """Construct the copies, and connect to the seats; see ``MatchState``."""
        self._match = match = MatchState(setup, services)
        self._starts = EpisodeStarts(match)
        self._faults = EpisodeFaults(match, self._starts)
        self._resets = RequestedResets(match, self._starts)
        self._channel, self._episodes, self._mailbox = match.channel, match.episodes, services.mailbox
        self._running = match.episodes.by_env
        self._next_batch: Callable[[], int] = match.channel.wait_any
        if setup.row.env.manager != "serial":
            async_batches = AsyncBatches(
                match.channel,
                match.manager,
                match.slices,
                self._dispatch,
                self.housekeeping,
                services.waiter,
                setup.row.env.wait_timeout,
            )
            match.late = async_batches.late
            self._next_batch = async_batches.next_batch
        self._closing, self._end_flags = False, MATCH_OVER
        self._next_poll = 0.0

    def serve(self) -> None:
        """Step the match until it is closed, then send the last reports; its copies are closed in any case."""
        try:
            self._serve()
        finally:
            self._match.manager.close()

    def _serve(self) -> None:
        if self._match.job_queue is not None:
            self._match.services.waiter.until(self._has_job, lambda: "the first job of the league")
        open_batches = True
        while open_batches:
            batch = -1
            try:
                batch = self._next_batch()
                commands = self._channel.commands(batch)
                if self._closing or (commands and self._all_done(commands)):
                    open_batches = self._end(batch)
                    continue
                if commands and self._resets.is_requested(batch, commands):
                    if not self._resets.reset(batch):
                        continue
                else:
                    self._step(batch)
            except NeverWorkedError:
                raise
            except RetriesSpentError as error:
                self._give_up(error)
                open_batches = batch < 0 or self._end(batch)
                continue
            self._channel.send(batch)
            self._episodes.count()
            if self._episodes.steps_at_end is not None:
                self._episodes.fill_steps()
            now = time.monotonic()
            if now > self._next_poll:
                self._next_poll = now + MAILBOX_INTERVAL
                self.housekeeping()
                self._episodes.report_if_due(now)
        self._episodes.report()
        self._channel.close()

    def _give_up(self, error: RetriesSpentError) -> None:
        """End the match after a permanent failure of its environment, while the other matches continue.

        Raises:
          RetriesSpentError: ``error``, in a deterministic run, in which groups must not depend on the order of events.
        """
        match, services = self._match.setup.match, self._match.services
        if self._match.setup.deterministic or self._closing:
            raise error
        services.log.error("match %d is given up: %s", match.index, error)
        text = f"{error.sentence} (traceback: {self._match.log_path})"
        self._mailbox.post(0, MatchGivenUp(match.index, text))
        self._closing = True
        self._end_flags = MATCH_OVER | GIVEN_UP

    def _all_done(self, commands: Sequence[int]) -> bool:
        """Return whether no seat requests another step of the batch."""
        return self._match.setup.deterministic and bool(commands) and all(command == DONE for command in commands)

    def housekeeping(self) -> None:
        """Receive jobs and the closing of the match."""
        while (mail := self._mailbox.poll(CloseMatch, Job)) is not None:
            if isinstance(mail[1], CloseMatch):
                self._closing = True
            elif self._match.job_queue is not None:
                self._match.job_queue.add(mail[1])

    def _has_job(self) -> bool:
        self.housekeeping()
        return self._closing or (self._match.job_queue is not None and self._match.job_queue.ready())

    def _end(self, batch: int) -> bool:
        received = self._resets.cancel(batch)
        for s, message in enumerate(self._channel.messages[batch]):
            if message.header[1] and s not in received:
                self._channel.take_side(batch, s)
            header = self._channel.records[batch][s].header
            header[0] |= self._end_flags
            header[1] = 0
        return self._channel.send_last(batch)

    def _dispatch(self, batch: int) -> bool:
        """Begin the steps of a batch's copies in subprocesses; return False if the batch must be served first."""
        match, commands = self._match, self._channel.commands(batch)
        if self._closing or self._all_done(commands) or self._resets.is_requested(batch, commands):
            return False
        for copy, number in match.numbers[batch]:
            if number in match.late:
                continue
            if self._running[number].over:
                match.started[number] = self._starts.begin_start(batch, copy)
            else:
                match.copies.send(number)
        return True

    def _step(self, batch: int) -> None:
        """Step the copies of a batch, and write the observation messages of all seats."""
        match = self._match
        step, same_step, late = match.copies.step, match.same_step, match.late
        writer, stepped = match.writers[batch], self._episodes.stepped
        writer.begin()
        for copy, number in match.numbers[batch]:
            if late and number in late:
                writer.write_idle(copy)
                continue
            running = self._running[number]
            if running.over:
                self._starts.start(batch, copy)
                continue
            try:
                timestep = step[number]()
                if timestep is None:
                    continue
                writer.write(copy, timestep, started=False)
                if writer.has_state:
                    writer.write_state(copy, timestep, started=False)
                over = timestep.over
                if over or same_step:
                    writer.check(copy)
            except (ConfigError, RetriesSpentError):
                raise
            except FAILURES as error:
                self._faults.end_episode(batch, copy, fault_of(error, "step"))
                continue
            stepped.append((running, timestep))
            if over:
                self._episodes.count()
                match.manager.clear_faults(number)
                match.fault_log.first.have_finished = True
                self._episodes.finish(number, timestep, None)
                if same_step:
                    self._starts.restart(batch, copy, timestep)
        if writer.has_nan():
            self._episodes.count()
            self._faults.end_nan_episodes(batch)
        writer.finish()
        if writer.sides:
            match.send_sides(batch)
