"""Evaluations while training: which weights are next, what is recorded, and which players have learned enough."""

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import NamedTuple, Protocol

from arena.common.text import count_of, number
from arena.config.run import RunConfig
from arena.protocol.evaluation import EvaluationReport, EvaluationRequest, Snapshot
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter

START_UP = 600.0
"""Seconds without a sign of life that the first evaluation may take: at low priority, beside busy ranks, it imports
libraries and builds environments."""


class EvaluatorProcess(Protocol):
    """A process that evaluates, one request at a time."""

    def start(self, request: EvaluationRequest) -> None:
        """Start an evaluation."""

    def poll(self) -> EvaluationReport | None:
        """Return the next report, None if there is none yet."""

    def give_up(self) -> None:
        """Give up the evaluation in progress."""

    def end_round(self) -> bool:
        """End its part in the round; return whether an evaluation in progress has ended with it."""

    def close(self) -> None:
        """End the process."""


class _Weights(NamedTuple):
    """Weights of a player that can be evaluated."""

    steps: int
    path: Path


class Evaluations:
    """The root's side of evaluations.

    All learning players of the evaluated rows play in each evaluation, each with its newest weights. Weights that are
    replaced before they are evaluated are skipped.

    Attributes:
      reached: players with an evaluation of at least ``stop_at``.
    """

    def __init__(self, config: RunConfig, run: RunDirectory, records: RecordWriter, process: EvaluatorProcess) -> None:
        """Create it; nothing is evaluated before the first snapshot."""
        assert config.evaluate is not None
        self._section, self._config, self._run, self._records = config.evaluate, config, run, records
        self._process = process
        self._players = config.evaluated_players()
        self._newest: dict[str, _Weights] = {}
        self._evaluated: dict[str, int] = {}
        self._stored: set[str] = set()
        self._current: dict[str, _Weights] | None = None
        self._number = 0  # of the current evaluation
        self._skipped: dict[str, int] = dict.fromkeys(self._players, 0)
        self._patience = START_UP
        self._last_sign = 0.0
        self.reached: set[str] = set()

    def resume(self) -> None:
        """Take over from earlier attempts: players that have reached ``stop_at``, and those with weights on disk.

        A player whose budget is spent offers no weights again, and the others of its match need it.
        """
        resumed = {name: statistics.steps for name, statistics in self._records.players.items()}
        self._stored = {name for name, steps in resumed.items() if steps}
        if self._section.stop_at is not None:
            self.reached = self._records.evaluations.reached(self._section.stop_at, resumed)

    def add(self, snapshot: Snapshot) -> None:
        """Accept weights of a player."""
        before = self._newest.get(snapshot.player)
        self._newest[snapshot.player] = _Weights(snapshot.steps, Path(snapshot.path))
        if before is None:
            return
        if before.steps > self._evaluated.get(snapshot.player, -1) and not self._is_played(before):
            self._skipped[snapshot.player] += 1
        if not self._is_played(before):
            before.path.unlink(missing_ok=True)

    def _is_played(self, weights: _Weights) -> bool:
        return self._current is not None and weights in self._current.values()

    @property
    def pending(self) -> bool:
        """Whether an evaluation is in progress, or can start."""
        return self._current is not None or self._can_start()

    def _can_start(self) -> bool:
        newer = [name for name, each in self._newest.items() if each.steps > self._evaluated.get(name, -1)]
        return bool(newer) and self._newest.keys() | self._stored >= set(self._players)

    def poll(self) -> None:
        """Handle reports of the evaluator, and start the next evaluation."""
        while self._current is not None and (report := self._process.poll()) is not None:
            if report.number != self._number:  # of one that was given up
                continue
            self._last_sign = time.monotonic()
            if report.returns is not None:
                self._conclude(report)
        if self._current is not None and time.monotonic() > self._last_sign + self._patience:
            self._process.give_up()
            silent = f"no environment step within {self._patience:g} s"
            self._conclude(EvaluationReport(self._number, {}, self._patience, silent))
        if self._current is None and self._can_start():
            self._current = dict(self._newest)
            self._last_sign = time.monotonic()
            self._number += 1
            weights = {name: str(each.path) for name, each in self._current.items()}
            self._process.start(EvaluationRequest(self._number, weights))

    def _conclude(self, report: EvaluationReport) -> None:
        assert self._current is not None
        played, self._current = self._current, None
        # After a failure the environments, and perhaps the process, are new ones.
        self._patience = START_UP if report.fault else self._config.waits.warn_after
        for player, weights in played.items():
            is_new = weights.steps > self._evaluated.get(player, -1)
            self._evaluated[player] = weights.steps
            if is_new and report.returns and player in report.returns:
                self._record(player, weights, report)
            if self._newest[player] != weights:
                weights.path.unlink(missing_ok=True)
        if report.fault:
            names = ", ".join(f"{name}@{weights.steps}" for name, weights in played.items())
            self._records.evaluation_failed(f"evaluation of {names}: {report.fault}")
            reason = report.fault.partition("\n")[0]
            self._records.log_line("WARNING", f"the evaluation of {names} has failed, training continues: {reason}")

    def _record(self, player: str, weights: _Weights, report: EvaluationReport) -> None:
        assert report.returns is not None
        rows, returns = self._records.evaluations, report.returns[player]
        is_best = player not in rows.best or sum(returns) / len(returns) > rows.best[player]
        path = os.path.relpath(weights.path, self._run.path)
        result = rows.add(player, weights.steps, returns, report.seconds, path)
        text = f"{number(result.mean)} ± {number(result.deviation)} in {result.episodes} episodes"
        self._records.log_line("INFO", f"{player} is evaluated at {weights.steps:,} steps: {text}")
        if is_best and self._section.keep_best:
            self._keep(player, weights)
        threshold = self._section.stop_at
        if threshold is not None and result.mean >= threshold and player not in self.reached:
            self.reached.add(player)
            reached = f"{player} has reached stop_at of {number(threshold)} at {weights.steps:,} steps"
            self._records.log_line("INFO", f"{reached}: it stops learning")

    def _keep(self, player: str, weights: _Weights) -> None:
        best = self._run.best(player)
        temporary = best.with_name(f".{best.name}.tmp")
        try:
            shutil.copyfile(weights.path, temporary)
            temporary.replace(best)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            self._records.log_line("WARNING", f"{best} cannot be written: {error}")

    def end_round(self) -> None:
        """End an evaluation in progress where the evaluator is a rank: it may get another role in the next round."""
        if self._process.end_round():
            self._current = None

    def close(self) -> None:
        """End the evaluator, and remove weights that were kept for evaluations."""
        self._process.close()
        for player, count in self._skipped.items():
            if count:
                text = f"{player}: {count_of(count, 'evaluation')} skipped, since training was faster; raise"
                remedy = "evaluate.every, lower evaluate.episodes, or set evaluate.ranks: 1 where a core is free"
                self._records.log_line("INFO", f"{text} {remedy}")
        for player in self._players:
            with contextlib.suppress(OSError):
                shutil.rmtree(self._run.evaluated(player, 0).parent)
