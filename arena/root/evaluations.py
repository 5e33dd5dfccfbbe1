"""Evaluations while training: which weights are next, what is recorded, and which players have learned enough."""

import contextlib
import os
import shutil
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple, Protocol

from arena.common.errors import ConfigError
from arena.common.text import count_of, number
from arena.config.run import RunConfig
from arena.protocol.evaluation import EvaluationReport, EvaluationRequest, Snapshot
from arena.records.player_files import newest_version
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from arena.root.evaluation_pace import EvaluationPace

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

    All learning players of the evaluated rows play in each evaluation: each with the oldest weights that wait, or,
    where none wait, with those that it has played with last. A run that ends early leaves the weights that wait to a
    resume.

    Attributes:
      is_playing: whether an evaluation is in progress.
      failures: number of failed evaluations in a row.
      reached: players with an evaluation of at least ``stop_at``.
    """

    def __init__(self, config: RunConfig, run: RunDirectory, records: RecordWriter, process: EvaluatorProcess) -> None:
        """Create it; nothing is evaluated before the first snapshot."""
        assert config.evaluate is not None
        self._section, self._config, self._run, self._records = config.evaluate, config, run, records
        self._process = process
        self._players = config.evaluated_players()
        self._waiting: dict[str, deque[_Weights]] = {player: deque() for player in self._players}
        self._seated: dict[str, _Weights] = {}  # of the current evaluation, or of the last one
        self._playing: dict[str, _Weights] = {}  # the same, with those of players that had finished before a resume
        self._new: set[str] = set()  # players that the current evaluation is recorded for
        self._stored: set[str] = set()
        self._is_held = False
        self.is_playing = False
        self.failures = 0
        self._number = 0  # of the current evaluation
        self._skipped: dict[str, int] = dict.fromkeys(self._players, 0)
        self._patience = START_UP
        self._last_sign = 0.0
        rounds = config.round_list()
        budget = max((sum(each.budget(player) for each in rounds) for player in self._players), default=0)
        self._pace = EvaluationPace(config.evaluate, budget // config.evaluate.every)
        self.reached: set[str] = set()

    def resume(self) -> None:
        """Take over from earlier attempts: weights that wait, and players that have reached ``stop_at``.

        A player whose budget is spent offers no weights again, and the others of its match need it.
        """
        resumed = {name: statistics.steps for name, statistics in self._records.players.items()}
        self._stored = {name for name, steps in resumed.items() if steps and name in self._players}
        if self._section.stop_at is not None:
            self.reached = self._records.evaluations.reached(self._section.stop_at, resumed)
        for player in self._players:
            done = self._records.evaluations.steps_of(player)
            for weights in _files(self._run.waiting(player)):
                if weights.steps in done or weights.steps > resumed.get(player, 0):  # the latter will be learned again
                    weights.path.unlink(missing_ok=True)
                else:
                    self._waiting[player].append(weights)
        if count := self._count():
            self._records.log_line(
                "INFO", f"{count_of(count, 'evaluation')} of the earlier attempt will be made up for"
            )

    def add(self, snapshot: Snapshot) -> None:
        """Accept weights of a player."""
        waiting = self._waiting[snapshot.player]
        last = waiting[-1] if waiting else self._seated.get(snapshot.player)
        if last is not None and last.steps == snapshot.steps:  # the weights of an earlier offer
            return
        most = 1 if self._section.skip else self._section.waiting
        if len(waiting) >= most:
            waiting.pop().path.unlink(missing_ok=True)
            self._skipped[snapshot.player] += 1
        waiting.append(_Weights(snapshot.steps, Path(snapshot.path)))
        self._pace.weights_arrived(snapshot.player, snapshot.steps)

    @property
    def pending(self) -> bool:
        """Whether an evaluation is in progress, or can start."""
        return self.is_playing or self._can_start()

    @property
    def left(self) -> str:
        """Number of evaluations that wait or are in progress, and the size of their weights; empty without any."""
        count = self._count() + self.is_playing
        if not count:
            return ""
        return f"{count_of(count, 'evaluation')} ({self._size() / 1e6:.1f} MB of weights)"

    def _count(self) -> int:
        return max(map(len, self._waiting.values()))

    def _size(self) -> int:
        """Return the bytes of all weights files."""
        waiting = [weights.path for each in self._waiting.values() for weights in each]
        return sum(path.stat().st_size for path in waiting if path.exists())

    def _can_start(self) -> bool:
        return self._count() > 0 and not self._missing()

    def _missing(self) -> list[str]:
        """Return the players without any weights so far."""
        here = {player for player, waiting in self._waiting.items() if waiting} | self._seated.keys() | self._stored
        return [player for player in self._players if player not in here]

    def poll(self) -> None:
        """Handle reports of the evaluator, and start the next evaluation."""
        while self.is_playing and (report := self._process.poll()) is not None:
            if report.number != self._number:  # of one that was given up
                continue
            self._last_sign = time.monotonic()
            if report.returns is not None:
                self._conclude(report)
        if self.is_playing and time.monotonic() > self._last_sign + self._patience:
            self._process.give_up()
            silent = f"no environment step within {self._patience:g} s"
            self._conclude(EvaluationReport(self._number, {}, self._patience, silent))
        if not self.is_playing and not self._is_held and self._can_start():
            self._start()

    def _start(self) -> None:
        self._new = {player for player, waiting in self._waiting.items() if waiting}
        for player in self._new:
            if (before := self._seated.get(player)) is not None:
                before.path.unlink(missing_ok=True)
            self._seated[player] = self._waiting[player].popleft()
        self.is_playing = True
        self._last_sign = time.monotonic()
        self._number += 1
        stored = {player: self._newest(player) for player in self._stored - self._seated.keys()}
        self._playing = self._seated | {player: newest for player, newest in stored.items() if newest is not None}
        weights = {name: str(each.path) for name, each in self._playing.items()}
        self._process.start(EvaluationRequest(self._number, weights))

    def _newest(self, player: str) -> _Weights | None:
        """Return weights of a player that had finished before the run was resumed."""
        try:
            found = newest_version(self._run, player, self._config.players[player].warm_start)
        except ConfigError:  # its checkpoints are damaged, which the evaluation reports
            return None
        return None if found is None else _Weights(found.steps, found.weights)

    def _conclude(self, report: EvaluationReport) -> None:
        self.is_playing = False
        # After a failure the environments, and perhaps the process, are new ones.
        self._patience = START_UP if report.fault else self._config.waits.warn_after
        self.failures = self.failures + 1 if report.fault else 0
        for player, weights in self._playing.items():
            if player in self._new and report.returns and player in report.returns:
                self._record(player, weights, report)
        if report.fault:
            names = ", ".join(f"{name}@{weights.steps}" for name, weights in self._playing.items())
            self._records.evaluation_failed(f"evaluation of {names}: {report.fault}")
            reason = report.fault.partition("\n")[0]
            self._records.log_line("WARNING", f"the evaluation of {names} has failed, training continues: {reason}")
        elif (note := self._pace.evaluated(report.seconds)) is not None:
            self._records.log_line("WARNING", note)

    def _record(self, player: str, weights: _Weights, report: EvaluationReport) -> None:
        assert report.returns is not None
        rows, returns = self._records.evaluations, report.returns[player]
        before = rows.best.get(player)
        path = os.path.relpath(weights.path, self._run.path)
        others = {name: each.steps for name, each in self._playing.items() if name != player}
        result = rows.add(player, weights.steps, returns, report.seconds, path, others)
        text = f"{number(result.mean)} ± {number(result.deviation)} in {result.episodes} episodes"
        self._records.log_line("INFO", f"{player} is evaluated at {weights.steps:,} steps: {text}")
        if self._section.keep_best and (before is None or result.mean > before):
            self._copy(weights.path, self._run.best(player))
            for other in others:
                self._copy(self._playing[other].path, self._run.best_opponent(player, other))
        if self._section.keep_all:
            self._copy(weights.path, self._run.snapshot(player, weights.steps))
        threshold = self._section.stop_at
        if threshold is not None and result.mean >= threshold and player not in self.reached:
            self.reached.add(player)
            reached = f"{player} has reached stop_at of {number(threshold)} at {weights.steps:,} steps"
            self._records.log_line("INFO", f"{reached}: it stops learning")

    def _copy(self, source: Path, target: Path) -> None:
        temporary = target.with_name(f".{target.name}.tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, temporary)
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            self._records.log_line("WARNING", f"{target} cannot be written: {error}")

    def hold(self, held: bool) -> None:
        """Start no evaluation while this is set: a rank's part in the round is about to end."""
        self._is_held = held

    def go_on_alone(self, process: EvaluatorProcess) -> None:
        """Continue with another process: there are no rounds any more, and no ranks."""
        self._process.close()
        self._give_back()
        self._process = process

    def end_round(self) -> None:
        """End an evaluation in progress where the evaluator is a rank: it may get another role in the next round."""
        if self._process.end_round():
            self._give_back()

    def _give_back(self) -> None:
        """Let the weights of an evaluation that ends without a result wait again."""
        if self.is_playing:
            for player in self._new:
                self._waiting[player].appendleft(self._seated.pop(player))
            self.is_playing = False

    def close(self) -> None:
        """End the evaluator; keep the weights that wait, for a resume, and remove the others."""
        self._process.close()
        self._give_back()
        for player, count in self._skipped.items():
            if count:
                key = "skip: true" if self._section.skip else f"waiting: {self._section.waiting}"
                text = f"{player}: {count_of(count, 'evaluation')} skipped by evaluate.{key}, since training was faster"
                self._records.log_line("INFO", text)
        if self._count() and (missing := self._missing()):
            for waiting in self._waiting.values():
                waiting.clear()
            text = f"nothing is evaluated, since there are no weights of {', '.join(missing)}"
            self._records.log_line("WARNING", text)
        elif left := self.left:
            self._records.log_line("WARNING", f"{left} wait for --resume, which carries them out")
        for player in self._players:
            kept = {weights.path for weights in self._waiting[player]}
            for weights in _files(self._run.waiting(player)):
                if weights.path not in kept:
                    weights.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it is not empty
                self._run.waiting(player).rmdir()


def _files(directory: Path) -> list[_Weights]:
    """Return the weights in a directory, oldest first."""
    found = [_Weights(int(path.stem), path) for path in directory.glob("*.safetensors") if path.stem.isdecimal()]
    return sorted(found)
