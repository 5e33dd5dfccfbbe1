"""The environment process: owns the copies of one match, steps them when all seats have acted, tells every seat."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from arena.common.errors import ConfigError
from arena.common.logs import path_of_log
from arena.common.masks import NoActionError, sample_action
from arena.common.seeding import derive_seed, seed_global_generators
from arena.common.trees import even_slices
from arena.common.waiting import Waiter
from arena.comms import Mailbox, World
from arena.config.run import TableRow
from arena.env_manager import ManagerSettings, create_env_manager
from arena.env_manager.faults import Fault, NotANumberError, RetriesSpentError, cut_short, fault_of
from arena.env_manager.serial import FAILURES
from arena.env_manager.source import EnvironmentSource
from arena.environment.async_batches import AsyncBatches
from arena.environment.batch_writer import BatchWriter
from arena.environment.episodes import RunningEpisodes
from arena.environment.first_episodes import FirstEpisodes, NeverWorkedError
from arena.environment.handshake import SeatOffers, connect_seats
from arena.environment.job_queue import JobQueue, Lineup
from arena.environment.stepping import InProcessStepper, SubprocessStepper
from arena.envs.interface import EntitySpaces, Timestep
from arena.plan.layout import Match
from arena.plan.seats import check_seats
from arena.protocol.messages import CloseMatch, Job, LogLine, MatchGivenUp
from arena.protocol.seat import ResetRequest
from arena.protocol.wire import (
    DONE,
    GIVEN_UP,
    MATCH_OVER,
    RESET,
    ShapeError,
    action_reader,
    blocks_of,
)

MAILBOX_INTERVAL = 0.05
"""Seconds between two looks into the mailbox: how long a match plays on once the root has closed it."""

MAX_LOGGED_FAULTS = 100
"""Different faults of a match that are logged with their tracebacks."""


class EnvironmentProcess:
    """Serves one match until the root closes it."""

    def __init__(
        self,
        world: World,
        mailbox: Mailbox,
        waiter: Waiter,
        *,
        match: Match,
        worker_ranks: Sequence[int],
        row: TableRow,
        seed: int,
        log: logging.Logger,
        league: bool = False,
        deterministic: bool = False,
        core_ranks: Sequence[int] = (),
    ) -> None:
        """Make the copies and the way to the seats.

        Args:
          world: all ranks.
          mailbox: to the root.
          waiter: how it waits.
          match: which one it serves.
          worker_ranks: of its seats.
          row: of the table: the environment.
          seed: what random streams derive from.
          log: of this rank.
          league: whether a league says what is played.
          deterministic: whether nothing may depend on what comes first, and the match ends when all seats say so.
          core_ranks: of all environment processes that keep to the core that its ranks keep to, if they do.
        """
        env = row.env
        if deterministic:  # for environments that draw from the global generators
            seed_global_generators(derive_seed(seed, "match", match.row, match.replica))
        self._ends_by_seats = deterministic
        self._world, self._mailbox, self._match = world, mailbox, match
        name = f"row {match.row} replica {match.replica}"
        self._told: set[str] = set()
        self._log, self._first = log, FirstEpisodes(env.use, env.num_envs, path_of_log(log))
        self._source = EnvironmentSource(env.use, env.settings, [(w.use, w.settings) for w in env.wrappers])
        settings = ManagerSettings.of(env, derive_seed(seed, "match", name))
        try:
            self._manager = create_env_manager(env.manager, self._source, env.num_envs, settings, self._note_fault)
        except (ConfigError, RetriesSpentError):
            raise
        except FAILURES as error:
            fault = fault_of(error, "constructor")
            log.error("match %d: %s", match.index, fault.text)
            raise self._first.error(fault) from error
        self._entities = self._manager.entities
        check_seats(
            f"match {match.index} (row {match.row} of the table)",
            env.use,
            [entity.name for entity in self._entities],
            [entity for seat in match.seats for entity in seat.entities],
            row.remapped,
        )
        self._job_queue = JobQueue(match.seats, len(self._entities)) if league else None
        self._episodes = RunningEpisodes(
            match.index,
            env.num_envs,
            self._players_of_entities(),
            self._job_queue,
            lambda episodes: mailbox.post(0, episodes),
            log,
        )
        self._running = self._episodes.by_env
        self._seeds: list[int | None] = [derive_seed(seed, "match", name, "copy", c) for c in range(env.num_envs)]
        self._generator = np.random.default_rng(derive_seed(seed, "match", name, "unclaimed"))
        self._same_step = env.autoreset == "same_step"
        # On one core nothing goes on meanwhile. But a deterministic run does not depend on the machine.
        batches = 1 if core_ranks and not deterministic else env.batch_count
        self._slices = even_slices(env.num_envs, batches)
        self._numbers = [tuple(enumerate(range(s.start, s.stop))) for s in self._slices]  # (place in batch, copy)
        seats = [tuple(self._entities[e] for e in seat.entities) for seat in match.seats]
        seat_blocks = [blocks_of(entities) for entities in seats]
        self._channel, answers = connect_seats(
            world,
            mailbox,
            waiter,
            match,
            worker_ranks,
            SeatOffers(seats, seat_blocks, self._slices, self._same_step, self._manager.turn_based),
            in_order=deterministic and env.manager == "serial",  # copies apart do not touch each other
            core_ranks=core_ranks,
        )
        places = [(b, copy) for b, s in enumerate(self._slices) for copy in range(s.stop - s.start)]
        readers = [self._entity_readers(b, copy) for b, copy in places]
        self._started: dict[int, bool] = {}  # copies that were sent off into an episode, or left idle by the job
        self._records = [
            BatchWriter(
                records,
                [seat.entities for seat in match.seats],
                seat_blocks,
                self._entities,
                readers=[i for i, answer in enumerate(answers) if answer.needs_infos],
                looks_for_nan=env.manager == "serial",  # elsewhere the copies look at what they return themselves
            )
            for records in self._channel.records
        ]
        # By batch: the resets that seats asked for, and of which copies, while others learn that theirs are cut short.
        self._cut_off: dict[int, tuple[dict[int, ResetRequest], list[bool]]] = {}
        self._late: set[int] = set()
        if env.manager == "serial":
            # In same-step mode each step is looked at before the next episode covers it.
            plain_places = [None if self._same_step else self._records[b].steady_slot(copy) for b, copy in places]
            self._copies = InProcessStepper(self._manager, readers, self._running, plain_places)
            self._next_batch = self._channel.wait_any
        else:
            self._copies = SubprocessStepper(self._manager, readers, self._running, [None] * env.num_envs)
            async_batches = AsyncBatches(
                self._channel,
                self._manager,
                self._slices,
                self._dispatch,
                self.housekeeping,
                waiter,
                env.wait_timeout,
            )
            self._late = async_batches.late
            self._next_batch = async_batches.next_batch
        self._workers, self._announced, self._waiter = tuple(worker_ranks), -1, waiter
        self._closing, self._ending = False, MATCH_OVER
        self._next_look = 0.0

    # Setting up -----------------------------------------------------------------------------------------------

    def _players_of_entities(self) -> tuple[str, ...]:
        players = [""] * len(self._entities)
        for seat in self._match.seats:
            for entity in seat.entities:
                players[entity] = seat.player
        unclaimed = [e.name for e, player in zip(self._entities, players, strict=True) if not player]
        if unclaimed:
            text = f"match {self._match.index}: nobody plays {', '.join(unclaimed)}; random actions are taken there"
            self._mailbox.post(0, LogLine(self._world.rank, "WARNING", text))
        return tuple(player or "(random)" for player in players)

    def _entity_readers(self, batch: int, copy: int) -> list[Callable[[], Any]]:
        """Return, for each entity, what gives its action in one copy of a batch."""
        readers: list[Callable[[], Any] | None] = [None] * len(self._entities)
        for s, seat in enumerate(self._match.seats):
            for b, block in enumerate(blocks_of([self._entities[e] for e in seat.entities])):
                for place, position in enumerate(block.positions):
                    tree = self._channel.messages[batch][s].actions[b]
                    readers[seat.entities[position]] = action_reader(tree, copy, place)
        return [r or self._random_reader(self._entities[e], e, batch, copy) for e, r in enumerate(readers)]

    def _random_reader(self, entity: EntitySpaces, index: int, batch: int, copy: int) -> Callable[[], Any]:
        """Return what gives a random action for an entity that nobody plays."""
        space = deepcopy(entity.action)
        space.seed(int(self._generator.integers(2**31)))
        running = self._running[self._slices[batch].start + copy]

        def sample() -> Any:
            masks = running.timestep.action_masks if running.timestep else None
            return sample_action(space, masks[index] if masks else None)

        return sample

    # Serving --------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Step the match until it is closed, then report what is left; its copies are closed in any case."""
        try:
            self._serve()
        finally:
            self._manager.close()

    def _serve(self) -> None:
        if self._job_queue is not None:
            self._waiter.until(self._has_job, lambda: "the first job of the league")
        open_batches = True
        while open_batches:
            batch = -1
            try:
                batch = self._next_batch()
                commands = self._channel.commands(batch)
                if self._closing or (commands and self._all_done(commands)):
                    open_batches = self._end(batch)
                    continue
                if commands and self._wants_reset(batch, commands):
                    if not self._reset(batch):
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
            if now > self._next_look:
                self._next_look = now + MAILBOX_INTERVAL
                self.housekeeping()
                self._episodes.report_if_due(now)
        self._episodes.report()
        self._channel.close()

    def _give_up(self, error: RetriesSpentError) -> None:
        """End the match, whose environment fails for good, while the others go on.

        Raises:
          RetriesSpentError: ``error``, in a deterministic run, whose groups must not depend on what comes first.
        """
        if self._ends_by_seats or self._closing:
            raise error
        self._log.error("match %d is given up: %s", self._match.index, error)
        text = f"{error.sentence} (traceback: {path_of_log(self._log)})"
        self._mailbox.post(0, MatchGivenUp(self._match.index, text))
        self._closing = True
        self._ending = MATCH_OVER | GIVEN_UP

    def _all_done(self, commands: Sequence[int]) -> bool:
        """Whether no seat needs another step of the batch."""
        return self._ends_by_seats and bool(commands) and all(command == DONE for command in commands)

    def _wants_reset(self, batch: int, commands: Sequence[int]) -> bool:
        """Whether a seat asks for a reset that is more than what a step does where every copy's episode is over."""
        if RESET not in commands:
            return False
        numbers = [number for _, number in self._numbers[batch]]
        return (
            batch in self._cut_off
            or self._job_queue is not None
            or not self._late.isdisjoint(numbers)
            or not all(self._running[number].over for number in numbers)
            or any(message.header[1] for message in self._channel.messages[batch])  # it says what the reset is to be
        )

    def housekeeping(self) -> None:
        """See whether the root closes the match."""
        while (mail := self._mailbox.poll(CloseMatch, Job)) is not None:
            if isinstance(mail[1], CloseMatch):
                self._closing = True
            elif self._job_queue is not None:
                self._job_queue.add(mail[1])

    def _has_job(self) -> bool:
        self.housekeeping()
        return self._closing or (self._job_queue is not None and self._job_queue.ready())

    def _end(self, batch: int) -> bool:
        taken = self._cut_off.pop(batch, ({}, []))[0]
        for s, message in enumerate(self._channel.messages[batch]):
            if message.header[1] and s not in taken:
                self._channel.take_side(batch, s)
            header = self._channel.records[batch][s].header
            header[0] |= self._ending
            header[1] = 0
        return self._channel.send_last(batch)

    # One exchange -----------------------------------------------------------------------------------------------

    def _dispatch(self, batch: int) -> bool:
        """Have the copies of a batch, which are elsewhere, do what the seats ask; False where that is no plain step."""
        commands = self._channel.commands(batch)
        if self._closing or self._all_done(commands) or self._wants_reset(batch, commands):
            return False
        for copy, number in self._numbers[batch]:
            if number in self._late:
                continue
            if self._running[number].over:
                self._started[number] = self._begin_start(batch, copy)
            else:
                self._copies.send(number)
        return True

    def _step(self, batch: int) -> None:
        step, same_step, late = self._copies.step, self._same_step, self._late
        records, stepped = self._records[batch], self._episodes.stepped
        records.begin()
        for copy, number in self._numbers[batch]:
            if late and number in late:
                records.write_idle(copy)
                continue
            running = self._running[number]
            if running.over:
                self._start(batch, copy)
                continue
            try:
                timestep = step[number]()
                if timestep is None:
                    continue
                records.write(copy, timestep, started=False)
                over = timestep.over
                if over or same_step:
                    records.check(copy)
            except (ConfigError, RetriesSpentError):
                raise
            except FAILURES as error:
                self._fault(batch, copy, fault_of(error, "step"))
                continue
            stepped.append((running, timestep))
            if over:
                self._episodes.count()
                self._manager.clear_faults(number)
                self._first.have_finished = True
                self._episodes.finish(number, timestep, None)
                if same_step:
                    self._restart(batch, copy, timestep)
        if records.has_nan():
            self._episodes.count()
            self._find_nan(batch)
        records.finish()
        if records.sides:
            self._put_sides(batch)

    def _start(self, batch: int, copy: int) -> None:
        """Begin the next episode of a copy, unless the job leaves it idle."""
        number = self._slices[batch].start + copy
        started = self._started.pop(number, None)
        if self._begin_start(batch, copy) if started is None else started:
            self._begin(batch, copy)

    def _begin_start(self, batch: int, copy: int) -> bool:
        """Order the reset of a copy for its next episode, with the players that the league wants; False for none."""
        number = self._slices[batch].start + copy
        options = None
        if self._job_queue is not None:
            lineup = self._job_queue.next(number)
            if lineup is None or lineup.job is None:
                self._records[batch].write_idle(copy)
                return False
            self._put_lineup(batch, copy, lineup, lineup.job)
            options = lineup.job.options
        seed, self._seeds[number] = self._seeds[number], None
        self._copies.begin_reset(number, seed, options)
        return True

    def _put_lineup(self, batch: int, copy: int, lineup: Lineup, job: Job) -> None:
        """Make ready for an episode of a job: its settings, and its number in every record."""
        running = self._running[self._slices[batch].start + copy]
        running.lineup = lineup
        if job.id > self._announced:
            self._announced = job.id
            for rank in self._workers:
                self._mailbox.deliver(rank, job)
        if running.settings != job.settings:
            running.settings = job.settings
            settings = {**self._source.settings, **job.settings}
            self._copies.restart(self._slices[batch].start + copy, replace(self._source, settings=settings))
        self._records[batch].write_lineup(copy, lineup.number)

    def _begin(self, batch: int, copy: int, final: Timestep | None = None) -> None:
        """Show the first observation of an episode, in same-step mode beside the outcome of the last one."""
        number = self._slices[batch].start + copy
        while True:
            timestep = shown = self._copies.finish_reset(number)
            if final is not None:
                shown = shown._replace(rewards=final.rewards, terminated=final.terminated, truncated=final.truncated)
            try:
                self._records[batch].write(copy, shown, started=True, over=final is not None)
                self._records[batch].check(copy)
                break
            except (ShapeError, NotANumberError, NoActionError) as error:
                self._copies.fail(number, fault_of(error, "reset"))
                self._copies.retry_reset(number)
        self._running[number].begin(timestep)
        self._first.have_reset = True

    def _restart(self, batch: int, copy: int, final: Timestep) -> None:
        """In same-step mode: show the next episode's first observation beside the last one's outcome."""
        number = self._slices[batch].start + copy
        self._records[batch].put_finals(copy, final)  # before the reset: the environment may reuse what it returned
        seed, self._seeds[number] = self._seeds[number], None
        self._copies.begin_reset(number, seed, None)
        self._begin(batch, copy, final)

    # Faults ---------------------------------------------------------------------------------------------------

    def _find_nan(self, batch: int) -> None:
        """Treat the copies whose records say NaN as failed."""
        for copy in range(self._records[batch].copies):
            try:
                self._records[batch].check(copy)
            except NotANumberError as error:
                self._fault(batch, copy, fault_of(error, "step"))

    def _fault(self, batch: int, copy: int, fault: Fault) -> None:
        """End the episode of a copy that failed, in every seat's record; the next exchange begins another one."""
        number = self._slices[batch].start + copy
        self._copies.fail(number, fault)
        self._seeds[number] = self._manager.next_seed(number)
        final = self._cut(self._running[number].timestep, {"restarted": fault.line})
        self._episodes.finish(number, final, f"fault:{fault.what}")
        if self._same_step:
            self._restart(batch, copy, final)
        else:
            self._records[batch].write(copy, final, started=False)
            self._records[batch].zero_nan(copy)
        self._records[batch].mark_void(copy)

    def _note_fault(self, number: int, fault: Fault) -> None:
        """Log a fault: one line for all, and its traceback, the first time, for this rank.

        Raises:
          NeverWorkedError: the environment has never worked.
        """
        text = fault.line
        told = f"match {self._match.index}, copy {number} ({fault.what})"
        if text not in self._told and len(self._told) < MAX_LOGGED_FAULTS:
            self._told.add(text)
            self._log.warning("%s: %s", told, fault.text)
        self._first.check(number, fault)
        self._mailbox.post(0, LogLine(self._world.rank, "WARNING", f"{told}: {text}"))

    # The records ----------------------------------------------------------------------------------------------

    def _put_sides(self, batch: int, seats: Sequence[int] | None = None) -> None:
        """Send what goes beside the records, to these seats only where they are named."""
        for s, side in self._records[batch].sides.items():
            if seats is None or s in seats:
                self._channel.put_side(batch, s, side)

    # Resets that a seat asked for -----------------------------------------------------------------------------

    def _requests(self, batch: int, seats: Iterable[int]) -> dict[int, ResetRequest]:
        """Return the reset of each of these seats that asked for one."""
        found = {}
        for s in seats:
            message = self._channel.messages[batch][s]
            if message.header[0] == RESET:
                side = self._channel.take_side(batch, s) if message.header[1] else None
                found[s] = side or ResetRequest(None, None, None)
        return found

    def _reset(self, batch: int) -> bool:
        """Reset copies because a seat said so.

        The other seats first learn that their episodes are truncated. False until all of them have answered that: one
        that plays several batches may first want to have the record of another one.
        """
        seats = range(len(self._match.seats))
        start, copies, records = self._slices[batch].start, self._records[batch].copies, self._records[batch]
        if batch in self._cut_off:
            requests, wanted = self._cut_off.pop(batch)
            requests.update(self._requests(batch, [s for s in seats if s not in requests]))
        else:
            requests = self._requests(batch, seats)
            wanted = [any(r.mask is None or r.mask[c] for r in requests.values()) for c in range(copies)]
            others = [s for s in seats if s not in requests]
            interrupted = [c for c in range(copies) if wanted[c] and not self._running[start + c].over]
            self._cut_episodes(batch, interrupted, min(requests))
            if interrupted and others:
                self._notify_truncated(batch, interrupted, others, min(requests))
                self._cut_off[batch] = requests, wanted
                return False
        records.begin()
        options = next((r.options for r in requests.values() if r.options is not None), None)
        for copy in range(copies):
            number = start + copy
            if wanted[copy]:
                self._late.discard(number)
                self._started.pop(number, None)
                seed, self._seeds[number] = self._seeds[number], None
                for request in requests.values():
                    if request.seeds is not None and request.seeds[copy] is not None:
                        seed = request.seeds[copy]
                self._copies.begin_reset(number, seed, options)
        for copy in range(copies):
            number = start + copy
            if wanted[copy]:
                self._begin(batch, copy)
            elif number in self._late:
                records.write_idle(copy)
            else:
                quiet = self._running[number].timestep._replace(infos=[{}] * len(self._entities))
                records.write(copy, quiet, started=False)
        records.finish()
        self._put_sides(batch)
        return True

    def _cut_episodes(self, batch: int, copies: Iterable[int], by: int) -> None:
        """End the episodes of copies that a seat wants to reset in their midst."""
        start = self._slices[batch].start
        for copy in copies:
            running = self._running[start + copy]
            if running.length:
                self._episodes.finish(start + copy, self._cut(running.timestep, {}), f"reset_by:{by}")

    def _cut(self, timestep: Timestep | None, info: dict) -> Timestep:
        """Return the truncated end of an episode that stops at this timestep."""
        assert timestep is not None
        return cut_short(timestep, self._manager.turn_based, info)

    def _notify_truncated(self, batch: int, copies: Sequence[int], others: Sequence[int], by: int) -> None:
        """Tell seats that their episodes were truncated."""
        start = self._slices[batch].start
        self._records[batch].begin()
        for copy in range(self._records[batch].copies):
            final = self._running[start + copy].timestep
            if copy in copies:
                final = self._cut(final, {"reset_by": by})
            self._records[batch].write(copy, final, started=False)
        self._records[batch].finish()
        self._put_sides(batch, others)
        for seat in others:
            self._channel.send_to(batch, seat)
