"""The root process: says who plays, keeps the records, decides when matches end; steps nothing, never waits blindly."""

import json
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from arena.common.errors import GO_ON, GivenUpError
from arena.common.files import write_text
from arena.common.waiting import Waiter
from arena.comms import Mailbox, World
from arena.config.run import Round, RunConfig
from arena.plan.layout import Plan, describe_part, shares_of_matches
from arena.protocol.messages import (
    CheckpointPart,
    Episodes,
    ExperienceTotals,
    Failure,
    GatewayOpen,
    LogLine,
    MatchGivenUp,
    NotWritten,
    Progress,
    RecoveryOrder,
    RoundOver,
    RoundStart,
    RunFailed,
    SaveState,
    StateSaved,
    SurvivorState,
    WriteCheckpoint,
)
from arena.records.checkpoints import Checkpoints
from arena.records.run_directory import RunDirectory
from arena.records.writer import RecordWriter
from arena.report.progress import ProgressView
from arena.root.hang_report import hang_report
from arena.root.league import LeagueCoordinator, restarts_of
from arena.root.round import IDLE_PAUSE, RootServices, RoundSupervisor
from arena.root.stop_bound import WITHIN, StopBound
from arena.system.stack_dump import StackCollector

VIEW_EVERY = 0.25
"""Seconds between two drawings of the terminal view."""


ASK_FOR = 2.5
"""Seconds that ranks have to say what they are doing; a rank that has given up ends the job by itself after 5."""


STATES_WITHIN, WRITTEN_WITHIN = 2.0, 10.0
"""Seconds that ranks have, before a job is aborted, to report what they could save, and to write it."""

LAST_ANSWERS = 0.5
"""Seconds in which gateways answer the clients that wait, before a job is aborted."""


class Root:
    """Rank 0 of a run.

    Attributes:
      stopping: whether a signal asked the run to end early.
      given_up: a sentence for each match that was given up.
      stopped_code: exit code of a run that a signal has stopped.
      ranks: for each rank that had a part, its role and whether it has loaded torch (only workers should).
    """

    def __init__(
        self,
        world: World,
        mailbox: Mailbox,
        config: RunConfig,
        run: RunDirectory,
        records: RecordWriter,
        view: ProgressView,
        stack_collector: StackCollector,
    ) -> None:
        """Take the run's things: all ranks, the mail, what was asked, where it goes, and a way to ask in a hang."""
        self._stack_collector = stack_collector
        self._plan: Plan | None = None
        self._world, self._mailbox, self._config, self._run = world, mailbox, config, run
        self._records, self._view = records, view
        self._checkpoints = Checkpoints(run.checkpoints, config.checkpoint.keep)
        self._number = self._checkpoints.next_number()
        self._rounds = config.round_list()
        self._next_view = 0.0
        self.stopping = False
        self.ranks: dict[int, dict[str, Any]] = {}
        self._steps: dict[str, int] = {}
        self._steps_before: dict[str, int] = {}
        self._updates: dict[str, int] = {}
        self._round_number = 0
        self._learning: list[str] = []
        self._newest: Path | None = None
        self._league: LeagueCoordinator | None = None
        self._league_state: dict[str, Any] | None = None
        self._roles: dict[int, str] = {}
        self._gateways: dict[int, str] = {}  # match -> where its games come to
        self._failed_noted = 0
        self._saved: dict[str, SurvivorState] = {}
        self.given_up: list[str] = []
        self._is_saving = False
        self._not_written: dict[str, str] = {}
        self.stopped_code = 0
        self._stop_bound: StopBound | None = None

    def listen_to_signals(self) -> None:
        """Have SIGTERM, SIGUSR1 and Ctrl-C end the run at the next update; a second one ends it at once."""

        def stop(number: int, _frame: Any) -> None:
            if self.stopping:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            self.stopping = True

        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            signal.signal(number, stop)

    # Resuming -------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Go on from the newest complete checkpoint: in its round, or in the next one where that one was finished."""
        newest = self._checkpoints.newest()
        assert newest is not None, "the run directory has refused to resume without a checkpoint"
        for warning in newest.warnings:
            self._records.log_line("WARNING", warning)
        manifest = newest.manifest
        self._newest = newest.path
        self._round_number = manifest["round"]
        self._steps = dict(manifest["round_steps"])
        self._steps_before = dict(manifest["steps_before"])
        self._updates = dict(manifest["updates"])
        self._learning = list(manifest["learning"])
        self._league_state = manifest["league"]
        self._records.restore(manifest["statistics"], manifest["number"])
        self._records.log_line("INFO", f"resumed from checkpoint {newest.path}")
        # Judged by the steps, so that a finished run can be resumed with a larger budget.
        round_ = self._rounds[self._round_number] if self._round_number < len(self._rounds) else None
        spent = round_ is None or all(self._steps.get(name, 0) >= round_.budget(name) for name in manifest["learning"])
        if manifest["finished"] and spent:
            self._advance_round()

    @property
    def errors(self) -> list[str]:
        """A sentence for each reason why the run, though it has come to its end, has not ended well."""
        found = list(self.given_up)
        reasons = dict.fromkeys(self._not_written.values())
        for reason in reasons:
            lost = ", ".join(what for what, its in self._not_written.items() if its == reason)
            found.append(f"{self._run}: {reason[:1].lower()}{reason[1:]} while writing {lost}")
        return found

    @property
    def finished(self) -> bool:
        """Whether all rounds have been played to their end."""
        return self._round_number >= len(self._rounds)

    # Rounds ---------------------------------------------------------------------------------------------------

    def next_round(self) -> RoundStart:
        """Return what to tell everybody at the start of the next round, or at the end of the run."""
        if self.stopping or self.finished:
            return RoundStart(-1, None, {}, {}, {}, {})
        number = self._round_number
        sources = self._resolve_copies(self._rounds[number - 1]) if number and not self._steps else {}
        newest = None if self._newest is None else str(self._newest.resolve())
        self._records.begin_round(number, sources, continues=bool(self._steps))
        restarts, pending = restarts_of(self._league_state or {})
        return RoundStart(number, newest, sources, self._steps, self._steps_before, self._updates, restarts, pending)

    def _advance_round(self) -> None:
        """Count the round's steps to what came before, and go to the next round."""
        for player, steps in self._steps.items():
            self._steps_before[player] = self._steps_before.get(player, 0) + steps
        self._steps = {}
        self._round_number += 1

    def _resolve_copies(self, last: Round) -> dict[str, str]:
        """Return player -> whose weights it takes; ``best`` and ``others`` are resolved by the last round's returns."""
        copies: dict[str, str] = {}
        if not last.copy or self._newest is None:
            return copies
        returns = self._records.round_returns()
        learning = {name: returns[name] for name in self._learning}
        for to, source in last.copy.items():
            chosen = max(learning, key=lambda name: learning[name]) if source == "best" else source
            targets: Iterable[str] = [name for name in learning if name != chosen] if to == "others" else [to]
            copies.update((name, chosen) for name in targets if name != chosen)
        for to, source in copies.items():
            self._records.log_line("INFO", f"{to} starts from the weights of {source}")
        return copies

    def supervise(self, plan: Plan) -> None:
        """Keep the records of one round and end its matches, until every busy rank has said that it is through."""
        if self._config.league is not None:
            self._league = LeagueCoordinator(
                self._config,
                self._run,
                self._mailbox,
                plan,
                self._records.league,
                self._records.log_line,
                self._league_state,
            )
        self._plan, self._gateways = plan, {}
        origins = self._world.origins
        self._roles = {origins[each.rank]: describe_part(each) for each in plan.assignments}
        if len(plan.matches) == 0:
            raise GivenUpError(f"{self._world.size} ranks are left, too few for any match; {GO_ON}")
        away = {seat.player for row in self._rounds[self._round_number].rows for seat in row.seats} - plan.groups.keys()
        if away and self._config.league is not None:
            raise GivenUpError(
                f"no match is left for {min(away)}, and the league cannot continue without this player; {GO_ON}"
            )
        for player in sorted(away):
            self._records.log_line("WARNING", f"no match is left for {player}: it learns no more")
        services = RootServices(
            config=self._config,
            mailbox=self._mailbox,
            records=self._records,
            is_stopping=lambda: self.stopping,
            handle=self.handle,
            record_rank=self._record_rank,
            give_up=self._give_up,
            refresh=self.refresh,
            order_checkpoint=self.order_checkpoint,
            complete_checkpoint=self.complete_checkpoint,
        )
        round_ = self._rounds[self._round_number]
        learning = [player for player in plan.groups if self._config.players[player].learns]
        ends = {player: self._steps_before.get(player, 0) + round_.budget(player) for player in learning}
        self._records.steps_of_episodes.begin_matches(shares_of_matches(plan.matches, round_.rows), ends)
        supervisor = RoundSupervisor(services, plan, self._league)
        supervisor.run()
        self._learning = supervisor.learning()

    def order_last_checkpoint(self) -> WriteCheckpoint:
        """Begin the checkpoint that everybody writes at the end of a round, or of a stretch of it."""
        self._not_written = {}  # what was missing until now is written with it, if it can be
        return self.order_checkpoint(last=self.stopping or self._round_is_over())

    def _round_is_over(self) -> bool:
        """Whether the round has been played to its end: a deterministic run plays it in stretches."""
        if not self._config.deterministic:
            return not self.stopping
        round_ = self._rounds[self._round_number]
        return all(self._steps.get(player, 0) >= round_.budget(player) for player in self._learning)

    def order_checkpoint(self, *, last: bool = False) -> WriteCheckpoint:
        """Begin the next checkpoint; ``last`` of a round or of the run."""
        number, self._number = self._number, self._number + 1
        return WriteCheckpoint(number, str(self._checkpoints.begin(number).absolute()), last)

    def complete_checkpoint(
        self, order: WriteCheckpoint, learning: Iterable[str], parts: Iterable[CheckpointPart] = (), *, finished: bool
    ) -> None:
        """Declare a checkpoint complete; a disk that refuses costs this checkpoint, not the run.

        Args:
          order: what ``order_checkpoint`` returned.
          learning: the players that learn.
          parts: what their groups said of their parts: they may have learned on since, the parts have not.
          finished: whether the round is over with it.
        """
        parts = list(parts)
        steps = {**self._steps, **{part.player: part.steps for part in parts}}
        statistics = self._records.state()
        for player, count in steps.items():
            statistics["players"][player]["steps"] = self._steps_before.get(player, 0) + count
        manifest = {
            "round": self._round_number,
            "round_steps": steps,
            "steps_before": self._steps_before,
            "steps": {player: statistics["players"][player]["steps"] for player in steps},
            "updates": {**self._updates, **{part.player: part.updates for part in parts}},
            "learning": list(learning),
            "finished": finished,
            "statistics": statistics,
            "league": self._league_state if self._league is None else self._league.state(),
        }
        self._check_lease()
        self._records.flush(force=True)  # a job that is killed goes on from here: what led here must be on record
        try:
            names = [f"{player}.safetensors" for player in self._config.players]
            self._checkpoints.carry(order.number, self._newest, names)
            self._newest = self._checkpoints.complete(order.number, manifest)
            self._records.log_line("INFO", f"checkpoint {order.number} is complete")
        except OSError as error:
            self._records.log_line("WARNING", f"checkpoint {order.number} is left out: {error}")
            self._not_written[f"checkpoint {order.number}"] = error.strerror or str(error)

    def _check_lease(self) -> None:
        if self._run.lease is not None:
            self._run.lease.check()

    def end_round(self, order: WriteCheckpoint) -> None:
        """Close the round with the checkpoint that everybody has written."""
        finished = self._round_is_over()
        self._records.release()
        self.complete_checkpoint(order, self._learning, finished=finished)
        if self._league is not None:
            self._league.close()
        if finished or self.stopping:
            self._records.end_round()
        if finished:
            self._advance_round()

    # Going on without a rank ------------------------------------------------------------------------------------

    def record_failed_ranks(self) -> None:
        """Note which ranks have died since the last time."""
        world = self._world
        for origin in world.dead[self._failed_noted :]:
            what = self._roles.get(origin, "no part yet")
            self._records.lost(origin, what)
            left = f"{world.size} ranks are left, and go on"
            self._records.log_line("WARNING", f"rank {origin} ({what}) has died; {left}")
        self._failed_noted = len(world.dead)
        self.ranks = {}  # they have closed up

    def order_recovery(self, survivors: Iterable[SurvivorState]) -> RecoveryOrder:
        """Say whose replica of each player counts: the one that has learned most, and all of them where they agree."""
        self._saved = {}
        for one in sorted(survivors, key=lambda one: (-one.updates, one.rank)):
            # What is left of a round that was closed is in its checkpoint.
            if one.player is not None and one.learns and one.round == self._round_number:
                self._saved.setdefault(one.player, one)
        try:
            order = self.order_checkpoint()
        except OSError as error:
            self._records.log_line("WARNING", f"what was learned since the last checkpoint is lost: {error}")
            return RecoveryOrder(None, {})
        return RecoveryOrder(order, {player: one.rank for player, one in self._saved.items()})

    def complete_recovery(self, recovery: RecoveryOrder, at_risk: Iterable[str] | None = None) -> None:
        """Complete the checkpoint from what the survivors have written; the next round starts from it.

        Args:
          recovery: the order that was carried out.
          at_risk: players that go back to the newest checkpoint if no rank has saved them; None: those with learners.
        """
        if at_risk is None:
            at_risk = self._plan.learners if self._plan is not None else ()
        order, saved = recovery.order, self._saved
        if order is not None:
            learning = {*self._learning, *saved}
            parts = []
            for player, one in saved.items():
                if one.act_learn:
                    parts.append(CheckpointPart(order.number, player, one.steps, one.updates))
                    if one.updates > self._updates.get(player, 0):  # the report of its last update was lost
                        steps = self._steps_before.get(player, 0) + one.steps
                        self._progress(Progress(player, 0, steps, one.updates, True, one.metrics or {}))
                    self._steps[player], self._updates[player] = one.steps, one.updates
            learning |= self._go_back(at_risk)
            self.complete_checkpoint(order, sorted(learning), parts, finished=False)
            self._learning = sorted(learning)
        if self._league is not None:
            self._league_state = self._league.state()
            self._league.close()
            self._league = None

    def _go_back(self, players: Iterable[str]) -> set[str]:
        """Have players continue from the newest checkpoint whose state no rank has saved.

        Args:
          players: all that might have been saved.

        Returns:
          Those that were not.
        """
        lost = [player for player in players if player not in self._saved]
        newest = self._checkpoints.newest() if lost else None
        for player in lost:
            there = newest is not None and newest.manifest["round"] == self._round_number
            steps = newest.manifest["round_steps"].get(player, 0) if newest is not None and there else 0
            if steps < self._steps.get(player, 0):
                back = f"it goes back from {self._steps[player]:,} to {steps:,} steps"
                self._records.log_line("WARNING", f"no rank has the state of {player}: {back}")
            self._steps[player] = steps
            self._updates[player] = 0 if newest is None else newest.manifest["updates"].get(player, 0)
        return set(lost)

    def _give_up(self, message: MatchGivenUp) -> None:
        """Note that a match is given up; the exit code of the run will be 1."""
        text = f"match {message.match} is given up: {message.text}"
        self.given_up.append(text)
        self._records.log_line("ERROR", text)

    def _record_rank(self, message: RoundOver) -> None:
        self.ranks[message.rank] = {"role": message.role, "loaded_torch": message.loaded_torch}

    def describe_ranks(self) -> None:
        """Write what each rank was to ``log/ranks.json``."""
        self.ranks[0] = {"role": "root", "loaded_torch": "torch" in sys.modules}
        hosts = self._world.hosts
        described = [{"rank": rank, "host": hosts[rank], **facts} for rank, facts in sorted(self.ranks.items())]
        try:
            write_text(self._run.log / "ranks.json", json.dumps(described, indent=1) + "\n")
        except OSError as error:
            self._records.log_line("WARNING", f"ranks.json is left out: {error}")

    # Mail -----------------------------------------------------------------------------------------------------

    def handle(self, message: Any) -> None:
        """Take one message that concerns the records."""
        if isinstance(message, Episodes):
            self._records.episodes(message)
        elif isinstance(message, Progress):
            self._progress(message)
        elif isinstance(message, ExperienceTotals):
            self._records.experience(message)
        elif isinstance(message, LogLine):
            self._records.log_line(message.level, f"rank {message.rank}: {message.text}")
        elif isinstance(message, NotWritten):
            self._not_written[message.what] = message.reason
        elif isinstance(message, GatewayOpen):
            self._open_gateway(message)
        elif isinstance(message, Failure):
            self.fail(message)

    def _open_gateway(self, message: GatewayOpen) -> None:
        """Write down where games outside may come to."""
        self._gateways[message.match] = message.url
        self._records.log_line("INFO", f"match {message.match}: games may come to {message.url}")
        described = [{"match": match, "url": url} for match, url in sorted(self._gateways.items())]
        try:
            write_text(self._run.gateways, json.dumps(described, indent=1) + "\n")
        except OSError as error:
            self._records.log_line("WARNING", f"{self._run.gateways} cannot be written: {error}")

    def _progress(self, message: Progress) -> None:
        self._records.progress(message)
        player = message.player
        self._updates[player] = max(self._updates.get(player, 0), message.updates)
        total = self._records.steps(player)
        self._steps[player] = total - self._steps_before.get(player, 0)

    def fail(self, failure: Failure) -> None:
        """Print why a rank cannot go on, once, and end the whole job."""
        if not failure.user_error:
            self._save_what_is_whole(failure.rank)
        self._view.close(failed=True)
        for text in self.given_up:
            print(f"error: {text}", file=sys.stderr, flush=True)
        code = report_failure(failure)
        if failure.hang:
            self._report_hang(failure)
        self._records.fault(failure)
        self._records.close(exit=code)
        if failure.user_error:
            self._run.forget()
            self._run.release_lease()
        self._warn_gateways(failure.rank)
        self._world.abort(code)

    def _bound_stop(self) -> None:
        """End the run, once a stop is requested, without ranks that do not come back from an environment."""
        if not self.stopping:
            return
        bound = self._stop_bound = self._stop_bound or StopBound(self._config.waits.stop_after)
        if not bound.is_due():
            return
        origins = self._world.origins
        reports = self._stack_collector.ask(WITHIN)
        found = {origins.index(rank): report for rank, report in reports.items() if rank in origins}
        stuck = bound.find_stuck(range(1, self._world.size), found)
        if not stuck:
            return
        for rank, place in stuck.items():
            who = f"rank {rank} ({self._roles.get(origins[rank], 'no part yet')})"
            text = f"{who} has not come back from its environment for {self._config.waits.stop_after:g} s{place}"
            self._records.log_line("WARNING", f"{text}: the run ends without it")
        self._save_what_is_whole(-1)
        self._view.close()
        self._records.close(exit=0)
        self._run.release_lease()
        self._warn_gateways(-1)
        self._world.abort(self.stopped_code)

    def _save_what_is_whole(self, failed: int) -> None:
        """Write a last checkpoint from the ranks that are between two updates, before the job is aborted.

        Args:
          failed: the rank that ends the run; 0, or that of a player in the midst of an update, saves nothing.
        """
        if failed == 0 or self._plan is None or self._config.deterministic or self._is_saving:
            return
        self._is_saving = True
        try:
            self._rescue()
        except Exception as error:  # the run has failed already, for another reason
            self._records.log_line("WARNING", f"no last checkpoint: {error}")

    def _rescue(self) -> None:
        assert self._plan is not None
        members = [a.rank for a in self._plan.assignments if a.player is not None or a.role == "runner"]
        for rank in members:
            self._mailbox.post(rank, SaveState())
        states = self._replies(SurvivorState, len(members), STATES_WITHIN)
        if not any(state.player is not None and state.learns for state in states):
            return
        recovery = self.order_recovery(states)
        if recovery.order is None:
            return
        for rank in recovery.writers.values():
            self._mailbox.post(rank, SaveState(recovery.order))
        written = {reply.player for reply in self._replies(StateSaved, len(recovery.writers), WRITTEN_WITHIN)}
        self._saved = {player: state for player, state in self._saved.items() if player in written}
        self.complete_recovery(recovery, [*self._steps])

    def _replies(self, kind: type, count: int, seconds: float) -> list[Any]:
        """Return ``count`` messages of a kind, or those that come within some seconds; keep the records meanwhile."""
        replies: list[Any] = []
        until = time.monotonic() + seconds
        while len(replies) < count and time.monotonic() < until:
            mail = self._mailbox.poll()
            if mail is None:
                time.sleep(0.01)
            elif isinstance(mail[1], kind):
                replies.append(mail[1])
            elif isinstance(mail[1], Progress | Episodes | LogLine):
                self.handle(mail[1])
        return replies

    def _warn_gateways(self, failed: int) -> None:
        """Let clients that wait at a gateway be answered before the job is aborted."""
        if self._plan is None or not self._gateways:
            return
        for match in self._gateways:
            rank, _ = self._plan.match_ranks(match)
            if rank != failed:
                self._mailbox.post(rank, RunFailed())
        until = time.monotonic() + LAST_ANSWERS
        while time.monotonic() < until:
            self._mailbox.poll(SurvivorState)  # lets the messages leave; nothing else is taken any more
            time.sleep(0.01)

    def _report_hang(self, failure: Failure) -> None:
        """Ask every rank what it is doing, and write down what they say."""
        origins = self._world.origins
        said = {
            origins.index(rank): told for rank, told in self._stack_collector.ask(ASK_FOR).items() if rank in origins
        }
        text = hang_report(failure, self._plan, self._world.hosts, said)
        try:
            write_text(self._run.hang_report, text)
        except OSError as error:
            print(f"{text}\n({self._run.hang_report} cannot be written: {error})", file=sys.stderr, flush=True)
        else:
            silent = self._world.size - 1 - len(said)
            told = f"what every rank was doing ({silent} gave no answer): {self._run.hang_report}"
            print(told, file=sys.stderr, flush=True)

    def refresh(self, matches: int = 0) -> None:
        """Draw the view and flush the records, not more often than useful; ``matches`` are running.

        Raises:
          LeaseLostError: another run has taken the run directory.
        """
        now = time.monotonic()
        self._view.matches = matches
        if now >= self._next_view:
            self._check_lease()
            self._bound_stop()
            self._next_view = now + VIEW_EVERY
            self._view.update()
            self._records.flush()


def report_failure(failure: Failure) -> int:
    """Print a failure to the terminal and return the exit code it asks for."""
    if failure.user_error:
        text, code = f"error: {failure.text}", 2
    else:
        who = f"rank {failure.rank} on {failure.host}, {failure.role}"
        who += f" of player {failure.player!r}" if failure.player else ""
        reason = failure.text.rstrip()
        text, code = f"error: {who} failed:{chr(10) if chr(10) in reason else ' '}{reason}", 1
    print(text, file=sys.stderr, flush=True)
    return code


def polling_waiter(root: Root, waiter: Waiter) -> Waiter:
    """Return a waiter that keeps taking mail and drawing the view while the root waits for the others."""

    def on_idle() -> None:
        while (mail := root._mailbox.poll()) is not None:
            root.handle(mail[1])
        root.refresh()

    return waiter.like(spin=0, yielding=0, max_sleep=IDLE_PAUSE, on_idle=on_idle)
