"""The manager of a league: a state machine that turns results and progress into jobs, snapshots and resets."""

import logging
from collections.abc import Collection, Mapping
from numbers import Integral
from typing import Any, ClassVar

from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.league.battle_payoff import BattleSharedPayoff
from arena.league.callbacks import AdvanceResult, LaunchJob, LoadCheckpoint, RollBack, SaveCheckpoint
from arena.league.initial_players import check, initial_history, initial_players
from arena.league.jobs import JobsInFlight
from arena.league.payoff import create_payoff
from arena.league.player import ActivePlayer, BattleActivePlayer, HistoricalPlayer
from arena.league.settings import LeagueConfig, changes, checked

logger = logging.getLogger(__name__)

VERSION = 2  # of the result of state_dict

LEARNING_KEEP = 0.5
"""Default of ``snapshot_keep`` for a player that learns on: the games of its last phase then weigh most."""


class BaseLeagueManager:
    """Players, their payoff and their jobs. It has no thread, no clock and no lock: its methods drive it.

    Callbacks may call the manager: a job may be finished from within its own launch.

    A job is a mapping of JSON values: ``job_id``; ``launch_player``, the learning player; ``sides``, a list of ids for
    each side; ``checkpoint_paths`` of all players on them; ``versions`` of the active ones; ``train``, false if no
    player learns; for battles ``opponent``; and ``forward``, ``data``, ``env`` and other keys configured for the
    player.

    Results belong to the versions that the job names: once one of its players was reset, they are ignored.

    Attributes:
      cfg: the validated settings.
      payoff: results of all games.
      active_players: players that learn.
      historical_players: snapshots, oldest first.
      roll_back_fn: callback of a rollback; by default it loads the snapshot's weights, as a reset loads others.
    """

    default_players: ClassVar[dict[str, int]] = {}
    """Player type -> default number of players, if the settings name no categories."""
    default_settings: ClassVar[dict[str, dict[str, Any]]] = {}
    """Player type -> settings that override its own defaults."""
    payoff_type: ClassVar[str] = "battle"

    def __init__(
        self,
        cfg: LeagueConfig | Mapping[str, Any],
        save_checkpoint_fn: SaveCheckpoint,
        load_checkpoint_fn: LoadCheckpoint,
        launch_job_fn: LaunchJob,
    ) -> None:
        """Create the league; no callback is called before the first ``advance``, so this also validates settings.

        Raises:
          ConfigError: a setting is invalid.
        """
        self.cfg = checked(LeagueConfig, cfg, "league")
        self._save, self._load, self._launch = save_checkpoint_fn, load_checkpoint_fn, launch_job_fn
        self.roll_back_fn: RollBack = lambda player, snapshot: load_checkpoint_fn(player, snapshot.checkpoint_path)
        self.payoff = create_payoff(self.cfg.payoff or {"type": self.payoff_type})
        self.active_players: list[ActivePlayer] = []
        self.historical_players: list[HistoricalPlayer] = []
        for player in initial_players(self.cfg, self.default_players, self.default_settings, self.payoff):
            self._add(player)
        history, self._reset_paths = initial_history(self.cfg, self.active_players)
        check(self.cfg, self.active_players, history)
        for frozen in history:
            self._add(frozen)
        self._jobs = JobsInFlight()
        self._late_job = -1  # the last job that was logged for its late results
        self._founded = self._closed = self._advancing = False

    @property
    def jobs_in_flight(self) -> tuple[dict[str, Any], ...]:
        """Jobs that were launched and are not finished, oldest first."""
        return tuple(self._jobs)

    def player(self, player_id: str) -> ActivePlayer | HistoricalPlayer:
        """Return a player by id.

        Raises:
          ConfigError: there is no such player.
        """
        roster = self.payoff.roster
        if player_id not in roster:
            ids = [player.player_id for player in roster.players]
            raise ConfigError(f"expected a player's id, found {player_id!r}{suggestion(str(player_id), ids)}")
        return roster.players[roster.index(player_id)]

    def run(self) -> None:
        """Call ``advance`` until it changes nothing, or :meth:`close` is called (for example by a callback)."""
        while any((done := self.advance())[:3]) or done.rolled_back:
            pass

    def close(self) -> None:
        """Launch no more jobs and freeze no more players. Jobs in flight may still be finished."""
        self._closed = True

    def advance(self, *, freeze: bool = True, finished: Collection[str] = ()) -> AdvanceResult:
        """Freeze trained players, reset those that mutate, and launch the jobs of every player.

        From within a callback, it does nothing: the current call continues.

        Args:
          freeze: whether players may be frozen or reset; otherwise weights stay unchanged.
          finished: ids of players that have stopped learning: they are neither frozen nor reset.

        Raises:
          ConfigError: a player finds no opponent.
          Exception: raised while weights were saved or loaded; no player has been added or removed then.
        """
        if self._closed or self._advancing:
            return AdvanceResult()
        self._advancing = True
        try:
            self._set_reset_weights()
            snapshots, mutated, rolled_back = self._freeze(finished) if freeze else ([], [], [])
            launched, failed = self._hand_out()
        finally:
            self._advancing = False
        return AdvanceResult(tuple(snapshots), tuple(mutated), tuple(launched), tuple(failed), tuple(rolled_back))

    def finish_job(self, job_info: Mapping[str, Any]) -> bool:
        """Finish a job, count its results, and free its slot.

        Args:
          job_info: ``job_id``, and ``results``: for each episode that counts ``wins``, ``draws`` or ``losses`` of the
            first side, or the sides' ranks, or a solo player's return. Without results the job was given up.
            ``returns``, of each side in each episode, may accompany them. ``sides`` and ``launch_player`` may be
            repeated and must then be the job's.

        Returns:
          whether the results were counted. A job that is not in flight changes nothing; a malformed report, or one of a
          player that was reset since, frees the slot and counts nothing. The log holds the reason.
        """
        job = self._jobs.find(job_info)
        if job is None:
            return False
        self._jobs.remove(job)
        return self._count(job, job_info)

    def report(self, job_info: Mapping[str, Any]) -> bool:
        """Count results of a job that continues: as :meth:`finish_job`, but its slot stays taken."""
        job = self._jobs.find(job_info)
        return job is not None and self._count(job, job_info)

    def _count(self, job: Mapping[str, Any], job_info: Mapping[str, Any]) -> bool:
        anew = [
            player_id for player_id, version in job.get("versions", {}).items() if self._version(player_id) != version
        ]
        if anew:
            if job["job_id"] != self._late_job:  # reports of a job arrive one after the other
                self._late_job = job["job_id"]
                logger.info(
                    "late results of job %d do not count: %s has got other weights since",
                    job["job_id"],
                    ", ".join(anew),
                )
            return False
        report = {**job, "results": job_info.get("results"), "returns": job_info.get("returns")}
        if not self.payoff.update(report):
            return False
        player = self.player(job["launch_player"])
        if isinstance(player, BattleActivePlayer):
            player.count_own_games(report)
        return True

    def update_active_player(self, player_info: Mapping[str, Any]) -> bool:
        """Record a player's progress: ``player_id`` and ``total_agent_step``.

        Returns:
          whether it was recorded; an unknown id or a decreasing step is rejected and logged.
        """
        player_id, step = player_info.get("player_id"), player_info.get("total_agent_step")
        if player_id not in self.payoff.roster or not self.player(str(player_id)).active:
            hint = suggestion(str(player_id), [player.player_id for player in self.active_players])
            logger.warning("progress was refused: expected an active player's id, found %r%s", player_id, hint)
            return False
        player = self.player(str(player_id))
        if isinstance(step, bool) or not isinstance(step, Integral) or step < player.total_agent_step:
            logger.warning(
                "progress of %s was refused: expected a step of at least %d, found %r",
                player_id, player.total_agent_step, step,
            )  # fmt: skip
            return False
        self._update_player(player, {**player_info, "total_agent_step": int(step)})
        return True

    def begin_phase(self, player_id: str, step: int) -> None:
        """Let a player's current phase begin at a step: loading weights may have taken it a while.

        Args:
          player_id: id of an active player.
          step: step at which it was reset.
        """
        player = self.player(player_id)
        assert isinstance(player, ActivePlayer)
        player.last_enough_step = step

    def state_dict(self) -> dict[str, Any]:
        """Return the whole league as JSON values, random states included."""
        return {
            "version": VERSION,
            "settings": self._settings(),
            "active": {player.player_id: player.state_dict() for player in self.active_players},
            "historical": [
                {
                    "player_id": player.player_id,
                    "category": player.category,
                    "checkpoint_path": player.checkpoint_path,
                    "total_agent_step": player.total_agent_step,
                    "parent_id": player.parent_id,
                }
                for player in self.historical_players
            ],
            "payoff": self.payoff.state_dict(),
            "jobs": list(self._jobs),
            "next_job": self._jobs.next_id,
            "founded": self._founded,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`, in a new league.

        Settings that have changed since are in effect from here on; each change is logged.

        Raises:
          ConfigError: the saved league has other players, or was saved by another version.
        """
        if state["version"] != VERSION:
            raise ConfigError(f"expected a league saved in version {VERSION}, found version {state['version']!r}")
        ids = [player.player_id for player in self.active_players]
        if list(state["active"]) != ids:
            raise ConfigError(
                f"the saved league has the active players {', '.join(state['active'])}, this one {', '.join(ids)}; "
                f"resume with the configuration that the league was saved with"
            )
        for key, was, now in changes(state["settings"], self._settings()) if "settings" in state else ():
            logger.warning(
                "the league's setting %s was %r when the league was saved and is %r now: the new value "
                "holds from now on, earlier counts stay as they are", key, was, now,
            )  # fmt: skip
        for saved in state["historical"]:
            if saved["player_id"] not in self.payoff.roster:
                fields = {key: value for key, value in saved.items() if key != "parent_id"}
                parent = self.player(saved["parent_id"])
                kind = type(parent)
                self._add(HistoricalPlayer(payoff=self.payoff, parent_id=parent.player_id, parent_type=kind, **fields))  # type: ignore[arg-type]
        self.payoff.load_state_dict(state["payoff"])
        for player in self.active_players:
            player.load_state_dict(state["active"][player.player_id])
        self._jobs.load(state["jobs"], state["next_job"])
        self._founded = state["founded"]

    def _settings(self) -> dict[str, Any]:
        """Return the settings of the league as JSON values."""
        return self.cfg.model_dump(mode="json") | {"payoff": self.payoff.cfg.model_dump(mode="json")}

    def _get_job_info(self, player: ActivePlayer) -> dict[str, Any]:
        """Return a player's next job, without its id; kinds of league may override this."""
        if not isinstance(player, BattleActivePlayer):
            return self._job(player, [[player.player_id]]) | player.get_job()
        job = player.get_job(self.cfg.sides - 1)
        opponents = [job["opponent"]] if isinstance(job["opponent"], str) else job["opponent"]
        return job | self._job(player, [[player.player_id], *([opponent] for opponent in opponents)])

    def _mutate_player(self, player: ActivePlayer) -> bool:
        """Reset a player after its weights were saved, if it mutates; return whether it was reset."""
        if not player.mutate():
            return False
        self._load(player.player_id, self._reset_paths[player.player_id])
        return True

    def _snapshot_keep(self, *, is_reset: bool) -> float:
        """Return the factor by which the records are multiplied that a snapshot takes over; kinds may override this.

        Args:
          is_reset: whether the player is reset in the same step.
        """
        assert isinstance(self.payoff, BattleSharedPayoff)
        keep = self.payoff.cfg.snapshot_keep
        return (1.0 if is_reset else LEARNING_KEEP) if keep is None else keep

    def _update_player(self, player: ActivePlayer | HistoricalPlayer, player_info: Mapping[str, Any]) -> None:
        """Record a progress report."""
        player.total_agent_step = player_info["total_agent_step"]

    def _job(self, player: ActivePlayer, sides: list[list[str]], *, train: bool = True) -> dict[str, Any]:
        """Return the common keys of every job."""
        ids = dict.fromkeys(player_id for side in sides for player_id in side)
        return {
            "launch_player": player.player_id,
            "sides": sides,
            "checkpoint_paths": {player_id: self.player(player_id).checkpoint_path for player_id in ids},
            "versions": {player_id: self._version(player_id) for player_id in ids if self.player(player_id).active},
            "train": train,
        }

    def _version(self, player_id: str) -> int:
        """Return the number of resets of an active player's weights."""
        player = self.player(player_id)
        assert isinstance(player, ActivePlayer)
        return player.version

    def _set_reset_weights(self) -> None:
        """Set the reset weights of every active player, once."""
        if self._founded:
            return
        for player in self.active_players:
            path = self._reset_paths[player.player_id]
            if player.category in self.cfg.pretrained:
                self._load(player.player_id, path)
            else:
                self._save(player.checkpoint_path, path)
        self._founded = True

    def _freeze(self, finished: Collection[str]) -> tuple[list[HistoricalPlayer], list[str], list[str]]:
        snapshots: list[HistoricalPlayer] = []
        mutated: list[str] = []
        rolled_back: list[str] = []
        for player in self.active_players:
            phase = player.last_enough_step
            if player.player_id in finished or not player.is_trained_enough():
                continue
            before = player.state_dict() | {"last_enough_step": phase}
            best = player.rollback_target()
            frozen, starts_anew = player.snapshot(), False
            try:
                if best is not None:  # what it has become is not frozen: no player should have to learn to beat it
                    self.roll_back_fn(player.player_id, best)
                else:
                    self._save(player.checkpoint_path, frozen.checkpoint_path)
                    # Only now: a reset before the snapshot would freeze untrained weights.
                    starts_anew = self._mutate_player(player)
            except BaseException:
                player.load_state_dict(before)
                if snapshots or rolled_back:  # they stay and are returned; the next call raises this again
                    break
                raise
            if best is not None or starts_anew:
                player.forget_results()
            if best is not None:
                rolled_back.append(player.player_id)
                assert isinstance(self.payoff, BattleSharedPayoff)
                self.payoff.roll_back(player.player_id, best.player_id)
                continue
            self._add(frozen)
            if isinstance(self.payoff, BattleSharedPayoff):
                keep = self._snapshot_keep(is_reset=starts_anew)
                self.payoff.inherit(frozen.player_id, player.player_id, keep)
            snapshots.append(frozen)
            if starts_anew:
                mutated.append(player.player_id)
                self.payoff.reset(player.player_id)
        return snapshots, mutated, rolled_back

    def _hand_out(self) -> tuple[list[dict[str, Any]], list[tuple[dict[str, Any], Exception]]]:
        launched, failed = [], []
        for player in self.active_players:
            # The limit is computed once: if launches finished their jobs immediately, it would never be reached.
            for _ in range(self.cfg.max_active_player_job - self._jobs.count(player.player_id)):
                if self._closed or self._jobs.count(player.player_id) >= self.cfg.max_active_player_job:
                    break
                job = self._jobs.add(self._get_job_info(player))  # before the launch, which may finish it
                try:
                    self._launch(job)
                except Exception as error:
                    logger.exception("job %d of %s could not be launched", job["job_id"], player.player_id)
                    if job in self._jobs:
                        self._jobs.remove(job)
                    failed.append((job, error))
                    break  # the next call tries again
                launched.append(job)
        return launched, failed

    def _add(self, player: ActivePlayer | HistoricalPlayer) -> None:
        self.payoff.add_player(player)
        if isinstance(player, HistoricalPlayer):
            self.historical_players.append(player)
        else:
            self.active_players.append(player)
