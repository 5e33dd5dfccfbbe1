"""The root process: supervises rounds, keeps the records, ends matches; it steps nothing and every wait is bounded."""

import json
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from arena.common.errors import GO_ON, GivenUpError
from arena.common.files import write_text
from arena.common.waiting import Waiter
from arena.plan.assignment import Plan, describe_part, shares_of_matches
from arena.protocol.checkpoints import NotWritten
from arena.protocol.evaluation import EvaluationReport, Snapshot
from arena.protocol.gateway import GatewayOpen
from arena.protocol.messages import (
    Episodes,
    ExperienceTotals,
    Failure,
    FilmRequest,
    LogLine,
    MatchGivenUp,
    Printed,
    Progress,
    RoundOver,
)
from arena.root.early_end import EarlyEnd
from arena.root.evaluations import Evaluations
from arena.root.evaluator_process import ChildEvaluator, RankEvaluator
from arena.root.films import Films
from arena.root.health import Health
from arena.root.league import LeagueCoordinator
from arena.root.printed import PrintedLines
from arena.root.rank_activity import RankActivity
from arena.root.round import IDLE_PAUSE, RootServices, RoundSupervisor
from arena.root.run_state import RunState
from arena.root.trackers import Trackers
from arena.system.stack_dump import StackCollector

FAILURES = 3
"""Failed evaluations in a row after which a run that only waits for them ends."""

VIEW_EVERY = 0.25
"""Seconds between two drawings of the terminal view."""


class Root:
    """Rank 0 of a run.

    Attributes:
      state: state of the run.
      evaluations: evaluations while training; None without the key ``evaluate``.
      ranks: rank -> its role, its player, and, once it has ended, whether it has loaded torch (only workers should).
    """

    def __init__(self, state: RunState, stack_collector: StackCollector, measure: Callable[[], dict[str, Any]]) -> None:
        """Create the root of a run.

        Args:
          state: state of the run.
          stack_collector: queries the other ranks' stacks and activity.
          measure: returns this rank's own activity.
        """
        self.state = state
        config, run, records = state.config, state.run, state.records
        self._next_view = 0.0
        self.ranks: dict[int, dict[str, Any]] = {}
        self._recorded_deaths = 0
        self._ending = EarlyEnd(state, stack_collector, self.handle)
        self._rank_activity = RankActivity(stack_collector, records.ranks, measure)
        self.evaluations: Evaluations | None = None
        self.films = None if config.records.films is None else Films(config, run, records)
        self.health = Health(records)
        self.printed = PrintedLines(records.log_line)
        self.trackers = Trackers(config.records.trackers, run, records)
        self._evaluator: ChildEvaluator | RankEvaluator | None = None
        if config.evaluate is not None:
            self._evaluator = RankEvaluator(state.mailbox) if config.evaluate.ranks else ChildEvaluator(run)
            self.evaluations = Evaluations(config, run, records, self._evaluator)

    def listen_to_signals(self) -> None:
        """End the run at the next update on SIGTERM, SIGUSR1 or Ctrl-C; end this process on a second one."""

        def stop(number: int, _frame: Any) -> None:
            if self.state.progress.stopping:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            self.state.progress.stopping = True

        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            signal.signal(number, stop)

    @property
    def errors(self) -> list[str]:
        """A sentence for each reason why a run that has ended is not a success."""
        sentences = list(self.state.given_up)
        not_written = self.state.progress.not_written
        reasons = dict.fromkeys(not_written.values())
        for reason in reasons:
            lost = ", ".join(name for name, its in not_written.items() if its == reason)
            sentences.append(f"{self.state.run}: {reason[:1].lower()}{reason[1:]} while writing {lost}")
        return sentences

    # Rounds ---------------------------------------------------------------------------------------------------

    def supervise(self, plan: Plan) -> None:
        """Keep the records of one round and end its matches, until every busy rank has finished the round."""
        progress = self.state.progress
        if self.state.config.league is not None:
            progress.league = LeagueCoordinator(
                self.state.config,
                self.state.run,
                self.state.mailbox,
                plan,
                self.state.records.league,
                self.state.records.log_line,
                progress.league_state,
            )
        self.state.plan, self.state.gateways = plan, {}
        self.ranks = {each.rank: {"role": each.role, "player": each.player} for each in plan.assignments}
        self.describe_ranks()
        self._rank_activity.begin_round(plan, self.state.world.hosts, self.state.world.origins)
        origins = self.state.world.origins
        self.state.roles = {origins[each.rank]: describe_part(each) for each in plan.assignments}
        if len(plan.matches) == 0:
            raise GivenUpError(f"{self.state.world.size} ranks are left, too few for any match; {GO_ON}")
        round_ = progress.rounds[progress.round_number]
        away = {seat.player for row in round_.rows for seat in row.seats} - plan.groups.keys()
        if away and self.state.config.league is not None:
            raise GivenUpError(
                f"no match is left for {min(away)}, and the league cannot continue without this player; {GO_ON}"
            )
        for player in sorted(away):
            self.state.records.log_line("WARNING", f"no match is left for {player}: it learns no more")
        services = RootServices(
            config=self.state.config,
            mailbox=self.state.mailbox,
            records=self.state.records,
            is_stopping=self._is_stopping,
            handle=self.handle,
            record_rank=self._record_rank,
            give_up=self._give_up,
            refresh=self.refresh,
            order_checkpoint=progress.order_checkpoint,
            complete_checkpoint=progress.complete_checkpoint,
            evaluations=self.evaluations,
        )
        learning = [player for player in plan.groups if self.state.config.players[player].learns]
        ends = {player: progress.steps_before.get(player, 0) + round_.budget(player) for player in learning}
        self.state.records.steps_of_episodes.begin_matches(shares_of_matches(plan.matches), ends)
        supervisor = RoundSupervisor(services, plan, progress.league)
        if isinstance(self._evaluator, RankEvaluator) and self.evaluations is not None:
            self._evaluator.rank = None  # that of another round, which a death may have ended
            self.evaluations.end_round()
            self._evaluator.rank = plan.evaluator
            self.evaluations.hold(plan.evaluator is None)
        supervisor.run()
        progress.learning = supervisor.learning()

    def _is_stopping(self) -> bool:
        return self.state.progress.stopping

    def finish_evaluations(self) -> None:
        """Carry out the evaluations that are left after the last round, by a child process; a signal ends this."""
        evaluations = self.evaluations
        if evaluations is None or self._is_stopping() or not evaluations.pending:
            return
        if isinstance(self._evaluator, RankEvaluator):
            self._evaluator = ChildEvaluator(self.state.run)
            evaluations.go_on_alone(self._evaluator)
        left = f"{evaluations.left} are left, and the run waits for them; Ctrl-C leaves them to --resume"
        self.state.records.log_line("INFO", f"training is over: {left}")
        self._rank_activity.end()
        began = time.monotonic()
        while evaluations.pending and not self._is_stopping() and evaluations.failures < FAILURES:
            evaluations.poll()
            self.refresh()
            time.sleep(IDLE_PAUSE)
        self.state.records.evaluations.waited = time.monotonic() - began

    # Ranks ----------------------------------------------------------------------------------------------------

    def record_failed_ranks(self) -> None:
        """Record the ranks that have died since the last call."""
        world = self.state.world
        for origin in world.dead[self._recorded_deaths :]:
            part = self.state.role_of(origin)
            self.state.records.lost(origin, part)
            left = f"{world.size} ranks are left, and go on"
            self.state.records.log_line("WARNING", f"rank {origin} ({part}) has died; {left}")
        self._recorded_deaths = len(world.dead)
        self.ranks = {}  # the survivors have new numbers

    def _give_up(self, message: MatchGivenUp) -> None:
        """Record that a match is given up; the exit code of the run will be 1."""
        text = f"match {message.match} is given up: {message.text}"
        self.state.given_up.append(text)
        self.state.records.log_line("ERROR", text)

    def _record_rank(self, message: RoundOver) -> None:
        self.ranks.setdefault(message.rank, {}).update(role=message.role, loaded_torch=message.loaded_torch)

    def describe_ranks(self) -> None:
        """Write the role, the host and the process id of each rank to ``log/ranks.json``."""
        self.ranks[0] = {"role": "root", "player": None, "loaded_torch": "torch" in sys.modules}
        hosts, processes = self.state.world.hosts, self.state.world.processes
        described = [
            {"rank": rank, "host": hosts[rank], "process": processes[rank], **facts}
            for rank, facts in sorted(self.ranks.items())
        ]
        try:
            write_text(self.state.run.ranks, json.dumps(described, indent=1) + "\n")
        except OSError as error:
            self.state.records.log_line("WARNING", f"ranks.json is left out: {error}")

    # Messages -------------------------------------------------------------------------------------------------

    def handle_mail(self) -> None:
        """Handle all messages that have arrived."""
        while (mail := self.state.mailbox.poll()) is not None:
            self.handle(mail[1])

    def handle(self, message: Any) -> None:
        """Handle a message that concerns the records."""
        if isinstance(message, Episodes):
            self.state.records.episodes(message)
            self._rank_activity.count(message.match, message.environment_steps)
        elif isinstance(message, Progress):
            self.state.progress.record(message)
        elif isinstance(message, ExperienceTotals):
            self.state.records.experience(message)
        elif isinstance(message, LogLine):
            self.state.records.log_line(message.level, f"rank {message.rank}: {message.text}")
        elif isinstance(message, Printed):
            self.printed.add(message, self.state.roles)
        elif isinstance(message, NotWritten):
            self.state.progress.not_written[message.what] = message.reason
        elif isinstance(message, GatewayOpen):
            self._open_gateway(message)
        elif isinstance(message, Snapshot) and self.evaluations is not None:
            self.evaluations.add(message)
        elif isinstance(message, EvaluationReport) and isinstance(self._evaluator, RankEvaluator):
            self._evaluator.receive(message)
        elif isinstance(message, FilmRequest) and self.films is not None:
            self.films.add(message)
        elif isinstance(message, Failure):
            self.fail(message)

    def _open_gateway(self, message: GatewayOpen) -> None:
        """Write the address of a gateway for external games."""
        self.state.gateways[message.match] = message.url
        self.state.records.log_line("INFO", f"match {message.match}: games may come to {message.url}")
        described = [{"match": match, "url": url} for match, url in sorted(self.state.gateways.items())]
        try:
            write_text(self.state.run.gateways, json.dumps(described, indent=1) + "\n")
        except OSError as error:
            self.state.records.log_line("WARNING", f"{self.state.run.gateways} cannot be written: {error}")

    def fail(self, failure: Failure) -> None:
        """Print the failure of a rank, once, and abort the whole job."""
        if self.films is not None:
            self.films.give_up()
        self._ending.fail(failure)

    def refresh(self, matches: int = 0) -> None:
        """Draw the view and flush the records, if due; ``matches`` are running.

        Raises:
          LeaseLostError: another run has taken the run directory.
        """
        now = time.monotonic()
        self.state.view.matches = matches
        if now >= self._next_view:
            self.state.progress.check_lease()
            self._ending.bound_stop()
            self._next_view = now + VIEW_EVERY
            self._rank_activity.update(now)
            if self.films is not None:
                self.films.poll()
            self.trackers.poll()
            self.health.poll()
            self.state.view.update()
            self.state.records.flush()


def polling_waiter(root: Root, waiter: Waiter) -> Waiter:
    """Return a waiter that handles messages and draws the view while the root waits for the other ranks."""

    def on_idle() -> None:
        root.handle_mail()
        root.refresh()

    return waiter.like(spin=0, yielding=0, max_sleep=IDLE_PAUSE, on_idle=on_idle)
