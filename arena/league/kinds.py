"""Kinds of league: their default players, and their assignment of jobs."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, ClassVar

from arena.league.battle_payoff import BattleSharedPayoff
from arena.league.callbacks import LaunchJob, LoadCheckpoint, RollBack, SaveCheckpoint
from arena.league.catalog import class_of
from arena.league.manager import BaseLeagueManager
from arena.league.player import ActivePlayer, BattleActivePlayer, merged
from arena.league.settings import LeagueConfig, checked


class AlphaStarLeague(BaseLeagueManager):
    """One main player, one main exploiter and two league exploiters per category."""

    default_players: ClassVar = {"main_player": 1, "main_exploiter": 1, "league_exploiter": 2}


class SelfPlayLeague(BaseLeagueManager):
    """A player that meets itself and its history."""

    default_players: ClassVar = {"self_player": 1}


class RoundRobinLeague(BaseLeagueManager):
    """Active players that meet each other in turn."""

    default_players: ClassVar = {"battle_active_player": 2}
    default_settings: ClassVar = {"battle_active_player": {"branch_probs": {"round_robin": 1.0}}}


class PsroLeague(BaseLeagueManager):
    """A player that learns against the Nash mixture of its history.

    The game to solve needs results of every pair of snapshots. So while a pair among the newest has too few games, the
    jobs are matches between those two, for the number of missing games, in which no player learns.
    """

    default_players: ClassVar = {"best_responder": 1}

    _pending_of: tuple[int, int] = (0, 0)  # sizes of the game and of the history at which _pending was computed
    _pending: tuple[tuple[str, str], ...] = ()

    def _snapshot_keep(self, *, is_reset: bool) -> float:
        # The game of the snapshots is measured by games between them: those of a player that learned are none.
        assert isinstance(self.payoff, BattleSharedPayoff)
        return 0.0 if self.payoff.cfg.snapshot_keep is None else super()._snapshot_keep(is_reset=is_reset)

    def _get_job_info(self, player: ActivePlayer) -> dict[str, Any]:
        pairs = self._unknown_pairs(player) if self.cfg.sides == 2 else ()
        if not pairs:
            return super()._get_job_info(player)
        assert isinstance(self.payoff, BattleSharedPayoff)
        requested = Counter[tuple[str, ...]]()
        for job in self.jobs_in_flight:
            if not job["train"]:
                requested[tuple(side[0] for side in job["sides"])] += job["env"]["episodes"]
        needed = max(self.payoff.cfg.min_win_rate_games, 1)
        for pair in pairs:
            missing = math.ceil(needed - self.payoff.record(*pair).games - requested[pair])
            if missing > 0:
                break
        else:
            pair, missing = pairs[0], 1  # all pairs have been requested: nothing better is known before results arrive
        job = merged(ActivePlayer.get_job(player), {"env": {"episodes": missing}})
        return job | self._job(player, [[pair[0]], [pair[1]]], train=False)

    def _unknown_pairs(self, player: ActivePlayer) -> Sequence[tuple[str, str]]:
        """Return the pairs of snapshots in the mixture's game from the first one on that has too few games."""
        payoff = self.payoff
        if not isinstance(payoff, BattleSharedPayoff) or not isinstance(player, BattleActivePlayer):
            return ()
        size, count = player.cfg.mixture_size, len(self.historical_players)
        if self._pending_of != (size, count):
            ids = [other.player_id for other in self.historical_players[-size:]]
            self._pending_of, self._pending = (size, count), tuple(combinations(ids, 2))
        # Counts never fall, so a pair that once had enough need not be checked again.
        known = 0
        while known < len(self._pending) and (
            payoff.record(*self._pending[known]).games >= max(payoff.cfg.min_win_rate_games, 1)
        ):
            known += 1
        self._pending = self._pending[known:]
        return self._pending


class SoloLeague(BaseLeagueManager):
    """One player without opponents; the league assigns its work."""

    default_players: ClassVar = {"solo_active_player": 1}
    payoff_type = "solo"


LEAGUES = {
    "alphastar": "arena.league.kinds:AlphaStarLeague",
    "self_play": "arena.league.kinds:SelfPlayLeague",
    "round_robin": "arena.league.kinds:RoundRobinLeague",
    "psro": "arena.league.kinds:PsroLeague",
    "solo": "arena.league.kinds:SoloLeague",
}


def league_type(name: str) -> Any:
    """Return the manager class that ``name`` stands for: a registered name, or a reference to code.

    Raises:
      ConfigError: there is none, or it is not a league manager.
    """
    return class_of(name, LEAGUES, "league", BaseLeagueManager)


def create_league(
    cfg: LeagueConfig | Mapping[str, Any],
    save_checkpoint_fn: SaveCheckpoint,
    load_checkpoint_fn: LoadCheckpoint,
    launch_job_fn: LaunchJob,
    roll_back_fn: RollBack | None = None,
) -> BaseLeagueManager:
    """Return a league of the kind that ``cfg.use`` names.

    Raises:
      ConfigError: there is no such kind, or a setting is invalid.
    """
    cfg = checked(LeagueConfig, cfg, "league")
    league = league_type(cfg.use)(cfg, save_checkpoint_fn, load_checkpoint_fn, launch_job_fn)
    if roll_back_fn is not None:
        league.roll_back_fn = roll_back_fn
    return league
