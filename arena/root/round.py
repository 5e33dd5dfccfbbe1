"""One round: the root's part from its start to the last report."""

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from arena.common.waiting import Pacer
from arena.comms import Mailbox
from arena.config.run import RunConfig
from arena.plan.assignment import Plan
from arena.protocol.checkpoints import CheckpointPart, WriteCheckpoint
from arena.protocol.league import Published
from arena.protocol.messages import CloseMatch, Episodes, Finished, MatchGivenUp, RankReady, RoundOver, StopLearning
from arena.records.writers.run import RecordWriter
from arena.root.evaluations import Evaluations
from arena.root.league import LeagueCoordinator

IDLE_PAUSE = 0.01
"""Seconds between two polls of an empty mailbox: the root must not take a core from other ranks."""

TICK_EVERY = 0.05
"""Seconds between two checks of due actions while mail keeps arriving."""


class CompleteCheckpoint(Protocol):
    """Callback that completes a checkpoint; see ``Root.complete_checkpoint``."""

    def __call__(
        self, order: WriteCheckpoint, learning: Iterable[str], parts: Iterable[CheckpointPart], *, finished: bool
    ) -> None:
        """Write the manifest, which makes the checkpoint count."""


class RootServices(NamedTuple):
    """Services of the root process for a round.

    Attributes:
      config: configuration of the run.
      mailbox: mailbox of all ranks.
      records: records of the run.
      is_stopping: whether a signal has requested a stop.
      handle: handles a message that concerns the run rather than the round.
      record_rank: records a rank's report at the end of the round.
      give_up: records the end of a match that was given up.
      refresh: draws the live view with this number of running matches, and flushes the records, when due.
      order_checkpoint: begins the next checkpoint; raises OSError if the disk fails.
      complete_checkpoint: completes a checkpoint.
      evaluations: evaluations while training, if configured.
    """

    config: RunConfig
    mailbox: Mailbox
    records: RecordWriter
    is_stopping: Callable[[], bool]
    handle: Callable[[Any], None]
    record_rank: Callable[[RoundOver], None]
    give_up: Callable[[MatchGivenUp], None]
    refresh: Callable[[int], None]
    order_checkpoint: Callable[[], WriteCheckpoint]
    complete_checkpoint: CompleteCheckpoint
    evaluations: Evaluations | None = None


class RoundSupervisor:
    """State of the current round in the root."""

    def __init__(self, services: RootServices, plan: Plan, league: LeagueCoordinator | None) -> None:
        self._services, self._plan, self._league = services, plan, league
        self._config, self._mailbox, self._records = services.config, services.mailbox, services.records
        self._joined: dict[str, RankReady] = {}
        self._finished: dict[str, set[int]] = {player: set() for player in plan.groups}
        self._busy = {a.rank for a in plan.assignments if a.role not in ("root", "idle")}
        self._open = set(range(len(plan.matches)))
        self._told_to_stop = self._told_to_wait = False
        self._ended_early: set[str] = set()  # players that have reached ``stop_at``
        self._order: WriteCheckpoint | None = None
        self._parts: dict[str, CheckpointPart] = {}
        self._next_checkpoint = time.monotonic() + self._config.checkpoint.every
        self._ticking = Pacer(TICK_EVERY)

    def run(self) -> None:
        """Handle messages until every busy rank has finished the round, and a rank its evaluation."""
        evaluator, evaluations = self._plan.evaluator, self._services.evaluations
        while self._busy - {evaluator}:
            self._step()
        if evaluations is not None:
            evaluations.hold(evaluator is not None)
            while evaluator is not None and evaluations.is_playing and not self._services.is_stopping():
                self._step()
            evaluations.end_round()
            while self._busy:
                self._step()
            evaluations.hold(False)

    def _step(self) -> None:
        mail = self._mailbox.poll()
        if mail is None:
            time.sleep(IDLE_PAUSE)
        else:
            self._take(*mail)
        if mail is None or self._ticking.due():
            self._tick()
            if self._services.evaluations is not None and not self._services.is_stopping():
                self._services.evaluations.poll()
        self._services.refresh(len(self._open))

    def _take(self, sender: int, message: Any) -> None:
        if isinstance(message, RankReady):
            self._joined[message.player] = message
        elif isinstance(message, Finished):
            self._finished[message.player].add(message.worker)
            if message.player in self._joined and self._is_finished(message.player):
                if self._joined[message.player].learns:  # one that does not learn plays on for the others
                    self._records.steps_of_episodes.finish(message.player)
                    steps = self._records.steps(message.player)
                    self._records.log_line("INFO", f"{message.player} is finished after {steps:,} steps")
                if self._league is not None:
                    self._league.finish(message.player)
            if not self._config.deterministic:
                self._close_matches()
        elif isinstance(message, CheckpointPart):
            if self._order is not None and message.number == self._order.number:
                self._parts[message.player] = message
                if self._parts.keys() >= set(self.learning()):
                    # A worker with a custom loop counts its own steps only; those of its group are in the records.
                    parts = [part for part in self._parts.values() if self._joined[part.player].act_learn]
                    self._services.complete_checkpoint(self._order, self.learning(), parts, finished=False)
                    self._order = None
        elif isinstance(message, RoundOver):
            self._busy.discard(message.rank)
            self._services.record_rank(message)
        elif isinstance(message, MatchGivenUp):
            self._services.give_up(message)
            self._give_up(message.match)
        elif isinstance(message, Published):
            assert self._league is not None
            self._league.published(message)
        else:
            if self._league is not None and isinstance(message, Episodes):
                message = self._league.episodes(message)
            self._services.handle(message)

    def learning(self) -> list[str]:
        """Return the players that learn in this round."""
        return [player for player, joined in self._joined.items() if joined.learns]

    def _is_finished(self, player: str) -> bool:
        joined = self._joined[player]
        needed = 1 if joined.act_learn and joined.learns else joined.workers
        return len(self._finished[player]) >= needed

    def _all_joined(self) -> bool:
        return len(self._joined) == len(self._plan.groups)

    def _close_matches(self) -> None:
        """Close each match in which all learning players (all players, if none learns) have finished."""
        if not self._all_joined():
            return
        learning = set(self.learning())
        for index in sorted(self._open):
            match = self._plan.matches[index]
            players = {seat.player for seat in match.seats}
            if match.external and not players & learning:  # no player learns there, and no client may come
                players = learning or players
            if all(self._is_finished(player) for player in (players & learning) or players):
                self._close(index)

    def _give_up(self, index: int) -> None:
        """Continue without a match; a player without another match learns no more."""
        self._open.discard(index)
        if self._league is not None:
            self._league.close_match(index)
        left = {seat.player for other in self._open for seat in self._plan.matches[other].seats}
        for player in {seat.player for seat in self._plan.matches[index].seats}:
            joined = self._joined.get(player)
            if joined is not None and joined.learns and joined.act_learn:
                if player not in left:
                    self._records.log_line("WARNING", f"no match is left for {player}: it learns no more")
                    self._mailbox.post(self._plan.leader(player), StopLearning())
            elif joined is None or joined.learns or player not in left:
                # A custom loop ends, with those of its whole group, when one of its matches does.
                self._finished[player].update(range(len(self._plan.places[player])))
        self._close_matches()

    def _close(self, index: int) -> None:
        self._open.discard(index)
        if self._league is not None:
            self._league.close_match(index)
        environment, _ = self._plan.match_ranks(index)
        self._mailbox.post(environment, CloseMatch())

    def _leaders(self, players: Iterable[str]) -> list[int]:
        return [self._plan.leader(player) for player in players]

    def _tick(self) -> None:
        if not self._all_joined():
            if self._services.is_stopping() and not self._told_to_wait:
                self._told_to_wait = True
                text = "asked to stop: as soon as the environments are there; a second signal ends at once"
                self._records.log_line("WARNING", text)
            return
        if self._config.deterministic:  # the seats end their matches, after a number of updates
            if self._services.is_stopping() and not self._told_to_stop:
                self._told_to_stop = True
                text = "asked to stop: at the next checkpoint of a deterministic run; a second signal ends at once"
                self._records.log_line("WARNING", text)
            return
        if self._services.is_stopping():
            self._stop()
        elif self._open:
            self._end_reached()
            self._close_matches()
            if self._league is None or self._league.begun:
                self._checkpoint()
            if self._league is not None:
                self._league.holding = self._order is not None
                self._league.advance()

    def _end_reached(self) -> None:
        """End the learning of players that have reached ``stop_at``, as a spent budget does."""
        reached = set() if self._services.evaluations is None else self._services.evaluations.reached
        for player in reached & self._joined.keys() - self._ended_early:
            joined = self._joined[player]
            self._ended_early.add(player)
            if joined.learns and joined.act_learn:
                self._mailbox.post(self._plan.leader(player), StopLearning())
            elif joined.learns:  # its loop ends with its matches
                self._finished[player].update(range(len(self._plan.places[player])))

    def _stop(self) -> None:
        """Stop the groups that learn update by update, each at an update, then close every match."""
        together = [p for p in self.learning() if self._joined[p].act_learn]
        if not self._told_to_stop:
            self._told_to_stop = True
            self._records.log_line("WARNING", "asked to stop: at the next update; a second signal ends at once")
            for rank in self._leaders(together):
                self._mailbox.post(rank, StopLearning())
        if all(self._is_finished(player) for player in together):
            for index in sorted(self._open):
                self._close(index)

    def _checkpoint(self) -> None:
        now = time.monotonic()
        if now < self._next_checkpoint:
            return
        self._next_checkpoint = now + self._config.checkpoint.every
        learning = self.learning()
        if not learning:
            return
        if self._order is not None:
            late = sorted(set(learning) - self._parts.keys())
            self._records.log_line("WARNING", f"checkpoint {self._order.number} is left out: no part from {late}")
        try:
            self._order = self._services.order_checkpoint()
        except OSError as error:
            self._records.log_line("WARNING", f"a checkpoint is left out: {error}")
            return
        self._parts = {}
        for rank in self._leaders(learning):
            self._mailbox.post(rank, self._order)
