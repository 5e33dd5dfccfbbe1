"""The records of a run: episodes, metrics and faults, written to SQLite and TensorBoard, and live statistics."""

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena.common.outcomes import against_own_snapshots
from arena.common.package import VERSION
from arena.protocol.messages import Episode, Episodes, ExperienceTotals, Failure, Progress
from arena.records.database import Database
from arena.records.player_statistics import (
    PlayerInfo,
    PlayerStatistics,
    Speed,
    entities_by_player,
    mean_by_player,
    mean_metrics,
    outcomes_of,
)
from arena.records.run_directory import RunDirectory
from arena.records.writers.episode_steps import EpisodeSteps
from arena.records.writers.evaluation_rows import EvaluationRows
from arena.records.writers.league import LeagueRecords
from arena.records.writers.logged_scalars import LoggedScalars
from arena.records.writers.metric_rows import MetricRows
from arena.records.writers.rank_rows import RankRows
from arena.records.writers.tensorboard import EventFiles

logger = logging.getLogger(__name__)


class _ArenaLog(logging.FileHandler):
    """Appends to ``arena.log``; a full disk costs lines, not the run."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's own name)
        """Drop the line: the failure of the disk is reported elsewhere."""


def open_arena_log(path: Path) -> logging.Handler:
    """Also write this process's log records below ``arena`` to ``path``."""
    handler = _ArenaLog(path, delay=True, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    arena_logger = logging.getLogger("arena")
    arena_logger.setLevel(logging.INFO)
    arena_logger.addHandler(handler)
    return handler


class RecordWriter:
    """Records the reports of all processes. Disk failures cause warnings, and never end the training.

    Attributes:
      attempt: number of this attempt of the run, from 1.
      round: index of the current round.
      players: live statistics of each player, in the order of the configuration.
      environment_steps: steps of all environment copies so far.
      faults: number of faults so far in this attempt.
      league: the tables of a league.
      evaluations: the evaluations while training.
      steps_of_episodes: players' steps at the ends of episodes.
    """

    def __init__(
        self,
        run: RunDirectory,
        players: Mapping[str, PlayerInfo],
        *,
        host: str,
        ranks: int,
        tensorboard: bool = True,
        deterministic: bool = False,
    ) -> None:
        """Open the records of an existing run directory, and begin another attempt in them.

        Args:
          run: the run directory.
          players: every player of the run.
          host: machine of the root.
          ranks: number of processes.
          tensorboard: whether to write event files too.
          deterministic: whether records may depend on counts only, never on the order of arrival.

        Raises:
          ConfigError: the records cannot be opened.
        """
        self.run = run
        self.players = {name: PlayerStatistics(info) for name, info in players.items()}
        self.round = 0
        self.environment_steps = 0
        self.faults = 0
        self.started = time.time()
        self._ended: float | None = None
        self._seconds_before = 0.0
        self._speed = Speed()
        self._log = open_arena_log(run.arena_log)
        self._database = Database(run.database)
        self.attempt = self._database.highest("attempt", "runs") + 1
        self._episode = self._database.highest("id", "episodes")
        self._events = EventFiles(run.tensorboard, self.attempt) if tensorboard else None
        self._experience: dict[str, dict[int, ExperienceTotals]] = {}  # of each player, by learner
        self._logged = LoggedScalars(self._database, self._events, self.attempt)
        self._metrics = MetricRows(self._database, self._events, self.attempt, deterministic=deterministic)
        self.evaluations = EvaluationRows(self._database, self._events, self.attempt, self.players)
        self._deterministic = deterministic
        self.steps_of_episodes = EpisodeSteps(self.players, deterministic)
        self._held: list[Episode] = []
        self._next_show = 0.0
        # return, length, steps (of episodes without a point yet)
        self._unshown: dict[str, list[tuple[float, int, int]]] = {}
        self._database.add(
            "INSERT INTO runs VALUES (?, ?, ?, NULL, ?, ?, ?, NULL, NULL, NULL)",
            (self.attempt, run.name, self.started, host, VERSION, ranks),
        )
        for name, info in players.items():
            row = (name, info.use, info.color, info.learns, info.budget)
            self._database.add("INSERT OR REPLACE INTO players VALUES (?, ?, ?, ?, ?)", row)
        self._database.flush(force=True)
        self.league = LeagueRecords(self._database, self.attempt, lambda player: self.players[player].forget_points())
        self.ranks = RankRows(self._database, self.attempt)

    def restore(self, state: Mapping[str, Any], checkpoint: int | None = None) -> None:
        """Continue from a checkpoint, before any report.

        Records after that checkpoint stay, as part of the earlier attempt; a deterministic run removes them, since it
        will record them again.

        Args:
          state: result of ``state`` when the checkpoint was made.
          checkpoint: number of the checkpoint.
        """
        self.round = state["round"]
        self.environment_steps = state["environment_steps"]
        self._seconds_before = state["seconds"]
        for name, statistics in state["players"].items():
            if name in self.players:
                self.players[name].restore(statistics)
        if self._deterministic:
            self._remove_records_after(state["episode"])
        missing = state["episode"] - self._episode
        if missing > 0:
            text = f"{missing} episodes before the checkpoint are not on record: they could not be written"
            if self._database.aside is not None:
                text = f"{missing} episodes before the checkpoint are not on record; see {self._database.aside}"
            self._fault(None, None, "records", text)
            self.log_line("WARNING", f"{self.run.database}: {text}")
            self._episode = state["episode"]
        # The payoff that the league continues from has no episode beyond the checkpoint.
        self._database.add("UPDATE episodes SET counted = 0 WHERE id > ?", (state["episode"],))
        resumed = {name: statistics.steps for name, statistics in self.players.items()}
        row: tuple[Any, ...] = (checkpoint, json.dumps(resumed), self.attempt)
        self._database.add("UPDATE runs SET checkpoint = ?, resumed = ? WHERE attempt = ?", row)
        if self._events is not None:
            self._events.purge_after(resumed)

    def _remove_records_after(self, episode: int) -> None:
        """Remove the records after the checkpoint: the run will record them again."""
        self._episode = min(self._episode, episode)
        self._database.add("DELETE FROM episodes WHERE id > ?", (self._episode,))
        self._database.add("DELETE FROM episode_entities WHERE episode > ?", (self._episode,))
        for name, statistics in self.players.items():
            row = (name, statistics.updates)
            self._database.add("DELETE FROM metrics WHERE player = ? AND updates > ?", row)
        self.evaluations.remove_after({name: statistics.steps for name, statistics in self.players.items()})

    @property
    def seconds(self) -> float:
        """Wall time of the run so far, including that of earlier attempts up to the checkpoint."""
        return self._seconds_before + (self._ended or time.time()) - self.started

    def state(self) -> dict[str, Any]:
        """Return, as JSON values for a checkpoint's manifest, the statistics that a resumed run continues from."""
        return {
            "round": self.round,
            "environment_steps": self.environment_steps,
            "seconds": self.seconds,
            "episode": self._episode,
            "players": {name: statistics.state() for name, statistics in self.players.items()},
        }

    def log_line(self, level: str, text: str) -> None:
        """Write a line to ``arena.log`` (and the terminal); ``level`` is a name of the ``logging`` module."""
        logger.log(getattr(logging, level, logging.INFO), text)

    def begin_round(self, index: int, copies: Mapping[str, str] | None = None, *, continues: bool = False) -> None:
        """Begin a round.

        Args:
          index: index of the round, from 0.
          copies: player -> the player from which it got its weights before.
          continues: whether a part of it has been played already.
        """
        self.round = index
        self._logged.begin_round()
        self.steps_of_episodes.begin_round()
        for statistics in self.players.values():
            statistics.begin_round(continues)
        self._database.add(
            "INSERT OR IGNORE INTO rounds VALUES (?, ?, ?, NULL, ?)",
            (self.attempt, index, time.time(), json.dumps(dict(copies)) if copies else None),
        )

    def end_round(self) -> None:
        """End the round."""
        row = (time.time(), self.attempt, self.round)
        self._database.add("UPDATE rounds SET ended = ? WHERE attempt = ? AND round = ?", row)

    def round_returns(self) -> dict[str, float]:
        """Return each player's mean return over the last episodes of this round; minus infinity without any."""
        recent = {name: statistics.round_returns for name, statistics in self.players.items()}
        return {name: sum(returns) / len(returns) if returns else float("-inf") for name, returns in recent.items()}

    def steps(self, player: str) -> int:
        """Return the transition steps of a player in the run."""
        return self.players[player].steps

    def episodes(self, message: Episodes) -> None:
        """Record an environment process's report."""
        self.environment_steps += message.environment_steps
        self._speed.read(time.monotonic(), self.environment_steps)
        if self._deterministic:
            self._held += message.episodes
            return
        for episode in message.episodes:
            self.episode(episode)
        self._metrics.write_measured(self.players)

    def release(self) -> None:
        """Record the episodes that a deterministic run has held back, in an order that does not depend on time."""
        held, self._held = self._held, []
        for episode in sorted(held, key=lambda episode: (episode.match, episode.copy)):
            self.episode(episode)
        self._metrics.write_measured(self.players)

    def episode(self, episode: Episode) -> None:
        """Record a finished episode; one cut by a fault is excluded from the statistics."""
        if episode.faulted:
            self._fault(None, None, "environment", f"match {episode.match}, copy {episode.copy}: {episode.cause}")
            totals = {}
        else:
            totals = self._count(episode)
        steps = self.steps_of_episodes.at_end(episode)
        if self._events is not None:
            for player, total in totals.items():
                self._unshown.setdefault(player, []).append((total, int(episode.length), steps[player]))
        self._episode += 1
        self._database.add(
            "INSERT INTO episodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self._episode,
                self.attempt,
                self.round,
                int(episode.match),
                int(episode.copy),
                float(episode.ended_at),
                int(episode.length),
                float(episode.seconds),
                bool(episode.truncated),
                episode.cause,
                episode.job,
                episode.counted,
            ),
        )
        entities = zip(episode.players, episode.returns, episode.lengths, episode.outcomes, strict=True)
        for entity, (player, total, length, outcome) in enumerate(entities):
            reported = None if outcome is None else str(outcome)
            measured = json.dumps(dict(episode.metrics[entity])) if episode.metrics else None
            row = (self._episode, entity, player, float(total), int(length), reported, steps[player], measured)
            self._database.add("INSERT INTO episode_entities VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def _count(self, episode: Episode) -> dict[str, float]:
        """Count an episode; return the mean return of each player's entities."""
        now = time.monotonic()
        outcomes = outcomes_of(episode.players, episode.returns, episode.outcomes)
        means = mean_by_player(episode.players, episode.returns)
        totals, length = {}, int(episode.length)
        met_own = against_own_snapshots(episode.players)
        for player, entities in entities_by_player(episode.players).items():
            if player not in self.players:
                continue
            totals[player] = total = float(means[player])
            steps = int(sum([episode.lengths[e] for e in entities]))
            self.players[player].finish(now, total, length, steps, outcomes[player], player in met_own)
            if episode.metrics:
                measured = mean_metrics([episode.metrics[e] for e in entities])
                self.players[player].measure(measured)
                self._metrics.measure(player, measured)
        return totals

    def progress(self, message: Progress) -> None:
        """Record a worker's report: the player's counts, and its metrics."""
        statistics = self.players.get(message.player)
        if statistics is None:
            logger.warning("a report names %r, which is not a player of this run", message.player)
            return
        now = time.monotonic()
        statistics.progress(now, message.worker, int(message.steps), int(message.updates), message.pooled)
        if message.logged:
            self._logged.add(message.player, message.logged)
            statistics.metrics.update({scalar.name: scalar.value for scalar in message.logged})
        if not message.metrics:
            return
        metrics = {name: float(value) for name, value in message.metrics.items()}
        statistics.metrics.update(metrics)
        self._metrics.update(message, metrics, statistics)

    def experience(self, message: ExperienceTotals) -> None:
        """Record the fate of the rollouts of a learner's workers, once all learners have reported."""
        reports = self._experience.setdefault(message.player, {})
        reports[message.learner] = message
        if len(reports) < message.learners:
            return
        del self._experience[message.player]
        parts = list(reports.values())
        sent, learned, dropped = (sum(getattr(part, name) for part in parts) for name in ("sent", "learned", "dropped"))
        lag = max(part.greatest_lag for part in parts)
        totals = {"sent": sent, "learned": learned, "dropped": dropped}
        metrics = {f"experience/{name}": float(count) for name, count in totals.items()} | {"lag/greatest": float(lag)}
        statistics = self.players[message.player]
        statistics.metrics.update(metrics)
        self._metrics.add(message.player, metrics, statistics, time.time())
        text = f"{message.player}: {sent:,} rollouts sent, {learned:,} learned from, {dropped:,} dropped; greatest lag"
        self.log_line("INFO", f"{text} {lag}")

    def fault(self, failure: Failure) -> None:
        """Record that a rank cannot continue."""
        self._fault(failure.rank, failure.host, failure.role, failure.text)

    def concern(self, player: str, kind: str, text: str) -> None:
        """Record a sign that a player does not learn."""
        row = (self.attempt, time.time(), player, kind, text)
        self._database.add("INSERT INTO concerns VALUES (?, ?, ?, ?, ?, NULL)", row)

    def concern_ended(self, player: str, kind: str) -> None:
        """Record that such a sign no longer holds."""
        row = (time.time(), self.attempt, player, kind)
        self._database.add(
            "UPDATE concerns SET ended = ? WHERE attempt = ? AND player = ? AND kind = ? AND ended IS NULL", row
        )

    def evaluation_failed(self, text: str) -> None:
        """Record that an evaluation has failed; training continues."""
        self._fault(None, None, "evaluator", text)

    def lost(self, rank: int, text: str) -> None:
        """Record the death of a rank, without which the run continues; ``text`` describes its role."""
        self._fault(rank, None, text, "died")

    def _fault(self, rank: int | None, host: str | None, role: str, text: str) -> None:
        self.faults += 1
        row = (self.attempt, time.time(), rank, host, role, text)
        self._database.add("INSERT INTO faults VALUES (?, ?, ?, ?, ?, ?)", row)

    def environment_steps_per_second(self) -> float:
        """Return the current speed of all environment copies together."""
        return self._speed.per_second(time.monotonic())

    def flush(self, force: bool = False) -> bool:
        """Write the queue, at most once a second unless forced; return whether it is empty."""
        now = time.monotonic()
        if self._events is not None and (force or now >= self._next_show):
            self._next_show = now + 1.0
            self._show()
            self._events.flush(force)
        return self._database.flush(force)

    def close(self, exit: int) -> bool:  # noqa: A002 (named like the column)
        """Record the exit code of this attempt, and write everything; return False if rows cannot be written."""
        self._ended = time.time()
        row = (self._ended, exit, self.attempt)
        self._database.add("UPDATE runs SET ended = ?, exit = ? WHERE attempt = ?", row)
        if self._events is not None:
            self._show()
            self._events.close()
        written = self._database.close()
        logging.getLogger("arena").removeHandler(self._log)
        self._log.close()
        return written

    def _show(self) -> None:
        """Write one point per player for the episodes since the last one: TensorBoard needs no more in a second."""
        assert self._events is not None
        now = time.monotonic()
        self._logged.show(lambda player: self.players[player].steps_per_second(now))
        at = time.time()
        for player, finished in self._unshown.items():
            statistics = self.players[player]
            values = {
                "return": sum(total for total, *_ in finished) / len(finished),
                "return_mean_100": statistics.mean_return or 0.0,
                "length": sum(length for _, length, _ in finished) / len(finished),
            }
            self._events.scalars(player, values, max(steps for *_, steps in finished), at)
        self._unshown.clear()
