"""Progress of a run and its checkpoints: the current round, its players' steps, and recovery after a death."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from arena.config.rounds import Round
from arena.config.run import RunConfig
from arena.protocol.checkpoints import CheckpointPart, RecoveryOrder, SurvivorState, WriteCheckpoint
from arena.protocol.messages import Progress, RoundStart
from arena.records.checkpoints import Checkpoints
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from arena.root.evaluations import Evaluations
from arena.root.league import LeagueCoordinator, restarts_of


class RunProgress:
    """The part of the root's state that checkpoints contain, and the checkpoints.

    Attributes:
      rounds: rounds of the run.
      round_number: index of the current round.
      stopping: whether a signal has requested an early end.
      steps: transition steps of each player in the current round.
      steps_before: transition steps of each player in earlier rounds.
      updates: gradient updates of each player.
      learning: players that learn in the current round; set when it is over.
      league: the root's side of the league, during a round.
      league_state: the league's state between rounds.
      not_written: file that could not be written -> reason.
      saved: player -> the state that a recovery or a last checkpoint uses.
    """

    def __init__(self, config: RunConfig, run: RunDirectory, records: RecordWriter) -> None:
        """Start at the beginning of the first round."""
        self._config, self._run, self._records = config, run, records
        self._checkpoints = Checkpoints(run.checkpoints, config.checkpoint.keep)
        self._next_checkpoint = self._checkpoints.next_number()
        self._newest: Path | None = None
        self.rounds = config.round_list()
        self.round_number = 0
        self.stopping = False
        self.steps: dict[str, int] = {}
        self.steps_before: dict[str, int] = {}
        self.updates: dict[str, int] = {}
        self.learning: list[str] = []
        self.league: LeagueCoordinator | None = None
        self.league_state: dict[str, Any] | None = None
        self.not_written: dict[str, str] = {}
        self.saved: dict[str, SurvivorState] = {}

    def resume(self, evaluations: Evaluations | None = None) -> None:
        """Continue from the newest complete checkpoint: in its round, or in the next one if that one is finished.

        Args:
          evaluations: evaluations while training, if configured; a player that has reached ``stop_at`` is finished.
        """
        newest = self._checkpoints.newest()
        assert newest is not None, "the run directory has refused to resume without a checkpoint"
        for warning in newest.warnings:
            self._records.log_line("WARNING", warning)
        manifest = newest.manifest
        self._newest = newest.path
        self.round_number = manifest["round"]
        self.steps = dict(manifest["round_steps"])
        self.steps_before = dict(manifest["steps_before"])
        self.updates = dict(manifest["updates"])
        self.learning = list(manifest["learning"])
        self.league_state = manifest["league"]
        self._records.restore(manifest["statistics"], manifest["number"])
        self._records.log_line("INFO", f"resumed from checkpoint {newest.path}")
        # The steps decide, so that a finished run can be resumed with a larger budget.
        round_ = self.rounds[self.round_number] if self.round_number < len(self.rounds) else None
        reached: set[str] = set()
        if evaluations is not None:
            evaluations.resume()
            reached = evaluations.reached
        left = [name for name in manifest["learning"] if name not in reached]
        spent = round_ is None or all(self.steps.get(name, 0) >= round_.budget(name) for name in left)
        if manifest["finished"] and spent:
            self.advance_round()

    @property
    def finished(self) -> bool:
        """Whether all rounds are finished."""
        return self.round_number >= len(self.rounds)

    def record(self, message: Progress) -> None:
        """Record a progress report of a worker."""
        self._records.progress(message)
        player = message.player
        self.updates[player] = max(self.updates.get(player, 0), message.updates)
        total = self._records.steps(player)
        self.steps[player] = total - self.steps_before.get(player, 0)

    # Rounds ---------------------------------------------------------------------------------------------------

    def next_round(self) -> RoundStart:
        """Return the message to all ranks at the start of the next round, or at the end of the run."""
        if self.stopping or self.finished:
            return RoundStart(-1, None, {}, {}, {}, {})
        number = self.round_number
        sources = self._resolve_copies(self.rounds[number - 1]) if number and not self.steps else {}
        newest = None if self._newest is None else str(self._newest.resolve())
        self._records.begin_round(number, sources, continues=bool(self.steps))
        restarts, pending = restarts_of(self.league_state or {})
        return RoundStart(number, newest, sources, self.steps, self.steps_before, self.updates, restarts, pending)

    def advance_round(self) -> None:
        """Add the round's steps to those of earlier rounds, and go to the next round."""
        for player, steps in self.steps.items():
            self.steps_before[player] = self.steps_before.get(player, 0) + steps
        self.steps = {}
        self.round_number += 1

    def _resolve_copies(self, last: Round) -> dict[str, str]:
        """Return player -> provider of its weights; the last round's returns resolve ``best`` and ``others``."""
        copies: dict[str, str] = {}
        if not last.copy or self._newest is None:
            return copies
        returns = self._records.round_returns()
        learning = {name: returns[name] for name in self.learning}
        for to, source in last.copy.items():
            chosen = max(learning, key=lambda name: learning[name]) if source == "best" else source
            targets: Iterable[str] = [name for name in learning if name != chosen] if to == "others" else [to]
            copies.update((name, chosen) for name in targets if name != chosen)
        for to, source in copies.items():
            self._records.log_line("INFO", f"{to} starts from the weights of {source}")
        return copies

    # Checkpoints ----------------------------------------------------------------------------------------------

    def order_last_checkpoint(self) -> WriteCheckpoint:
        """Begin the checkpoint that all ranks write at the end of a round, or of a stretch of it."""
        self.not_written = {}  # this checkpoint contains what earlier ones lacked
        return self.order_checkpoint(last=self.stopping or self.round_is_over())

    def round_is_over(self) -> bool:
        """Return whether the round is finished: a deterministic run plays it in stretches."""
        if not self._config.deterministic:
            return not self.stopping
        round_ = self.rounds[self.round_number]
        return all(self.steps.get(player, 0) >= round_.budget(player) for player in self.learning)

    def order_checkpoint(self, *, last: bool = False) -> WriteCheckpoint:
        """Begin the next checkpoint; ``last`` of a round or of the run."""
        number, self._next_checkpoint = self._next_checkpoint, self._next_checkpoint + 1
        return WriteCheckpoint(number, str(self._checkpoints.begin(number).absolute()), last)

    def complete_checkpoint(
        self, order: WriteCheckpoint, learning: Iterable[str], parts: Iterable[CheckpointPart] = (), *, finished: bool
    ) -> None:
        """Complete a checkpoint; a failing disk costs this checkpoint, not the run.

        Args:
          order: result of ``order_checkpoint``.
          learning: the players that learn.
          parts: reports of the groups about their parts, which may be older than the current steps.
          finished: whether it ends the round.
        """
        parts = list(parts)
        steps = {**self.steps, **{part.player: part.steps for part in parts}}
        statistics = self._records.state()
        for player, count in steps.items():
            statistics["players"][player]["steps"] = self.steps_before.get(player, 0) + count
        manifest = {
            "round": self.round_number,
            "round_steps": steps,
            "steps_before": self.steps_before,
            "steps": {player: statistics["players"][player]["steps"] for player in steps},
            "updates": {**self.updates, **{part.player: part.updates for part in parts}},
            "learning": list(learning),
            "finished": finished,
            "statistics": statistics,
            "league": self.league_state if self.league is None else self.league.state(),
        }
        self.check_lease()
        self._records.flush(force=True)  # a killed job continues from here: the records must reach this point
        try:
            names = [f"{player}.safetensors" for player in self._config.players]
            self._checkpoints.carry(order.number, self._newest, names)
            self._newest = self._checkpoints.complete(order.number, manifest)
            self._records.log_line("INFO", f"checkpoint {order.number} is complete")
        except OSError as error:
            self._records.log_line("WARNING", f"checkpoint {order.number} is left out: {error}")
            self.not_written[f"checkpoint {order.number}"] = error.strerror or str(error)

    def check_lease(self) -> None:
        """Check that this run still holds the lease of its directory.

        Raises:
          LeaseLostError: another run has taken it.
        """
        if self._run.lease is not None:
            self._run.lease.check()

    def end_round(self, order: WriteCheckpoint) -> None:
        """End the round with the checkpoint that all ranks have written."""
        finished = self.round_is_over()
        self._records.release()
        self.complete_checkpoint(order, self.learning, finished=finished)
        if self.league is not None:
            self.league.close()
        if finished or self.stopping:
            self._records.end_round()
        if finished:
            self.advance_round()

    # Recovery after the death of a rank -----------------------------------------------------------------------

    def order_recovery(self, survivors: Iterable[SurvivorState]) -> RecoveryOrder:
        """Return the ranks that write a checkpoint: for each player, one with the most updates."""
        self.saved = {}
        for state in sorted(survivors, key=lambda state: (-state.updates, state.rank)):
            # The state of an ended round is in its checkpoint.
            if state.player is not None and state.learns and state.round == self.round_number:
                self.saved.setdefault(state.player, state)
        try:
            order = self.order_checkpoint()
        except OSError as error:
            self._records.log_line("WARNING", f"what was learned since the last checkpoint is lost: {error}")
            return RecoveryOrder(None, {})
        return RecoveryOrder(order, {player: state.rank for player, state in self.saved.items()})

    def complete_recovery(self, recovery: RecoveryOrder, at_risk: Iterable[str]) -> None:
        """Complete the checkpoint that the survivors have written; the next round starts from it.

        Args:
          recovery: the order that was carried out.
          at_risk: players that return to the newest checkpoint if no rank has saved them.
        """
        order, saved = recovery.order, self.saved
        if order is not None:
            learning = {*self.learning, *saved}
            parts = []
            for player, state in saved.items():
                if state.act_learn:
                    parts.append(CheckpointPart(order.number, player, state.steps, state.updates))
                    if state.updates > self.updates.get(player, 0):  # the report of its last update was lost
                        steps = self.steps_before.get(player, 0) + state.steps
                        self.record(Progress(player, 0, steps, state.updates, True, state.metrics or {}))
                    self.steps[player], self.updates[player] = state.steps, state.updates
            learning |= self._go_back(at_risk)
            self.complete_checkpoint(order, sorted(learning), parts, finished=False)
            self.learning = sorted(learning)
        if self.league is not None:
            self.league_state = self.league.state()
            self.league.close()
            self.league = None

    def _go_back(self, players: Iterable[str]) -> set[str]:
        """Return players to the newest checkpoint that no rank has saved.

        Args:
          players: all players that could have been saved.

        Returns:
          The players that were not saved.
        """
        lost = [player for player in players if player not in self.saved]
        newest = self._checkpoints.newest() if lost else None
        for player in lost:
            there = newest is not None and newest.manifest["round"] == self.round_number
            steps = newest.manifest["round_steps"].get(player, 0) if newest is not None and there else 0
            if steps < self.steps.get(player, 0):
                back = f"it goes back from {self.steps[player]:,} to {steps:,} steps"
                self._records.log_line("WARNING", f"no rank has the state of {player}: {back}")
            self.steps[player] = steps
            self.updates[player] = 0 if newest is None else newest.manifest["updates"].get(player, 0)
        return set(lost)
