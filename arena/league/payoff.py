"""Payoffs: that of battles, or the latest results of a solo player."""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.league.battle_payoff import BattleSharedPayoff
from arena.league.report import InvalidReport, solo_report
from arena.league.roster import Roster, check_same_players
from arena.league.settings import BattlePayoffConfig, SoloPayoffConfig, checked

logger = logging.getLogger(__name__)


class SoloSharedPayoff:
    """The latest results of the one active player."""

    def __init__(self, cfg: SoloPayoffConfig | None = None) -> None:
        self.cfg = cfg or SoloPayoffConfig()
        self.roster = Roster()
        self._results: deque[float] = deque(maxlen=self.cfg.buffer_size)

    @property
    def results(self) -> Sequence[float]:
        """The latest results, oldest first."""
        return tuple(self._results)

    def add_player(self, player: Any) -> None:
        """Add the active player, or a snapshot of it.

        Raises:
          ConfigError: there is an active player already.
        """
        if player.active and len(self.roster.active()):
            raise ConfigError(f"a solo payoff has one active player; found {player.player_id!r} as a second")
        self.roster.add(player)

    def update(self, job_info: Mapping[str, Any]) -> bool:
        """Record a finished job's results, all or none; return whether they were recorded."""
        try:
            results = solo_report(job_info)
            launched = job_info.get("launch_player")
            if not isinstance(launched, str) or launched not in self.roster:
                raise InvalidReport(f"expected the active player's id as launch_player, found {launched!r}")
            if not self.roster.players[self.roster.index(launched)].active:
                raise InvalidReport(f"expected the active player's id as launch_player, found {launched!r}")
        except InvalidReport as error:
            logger.warning("a result was refused: %s", error)
            return False
        self._results.extend(results)
        return True

    def reset(self, player_id: str) -> None:
        """Remove the results: the player's weights were reset."""
        self._results.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return {"players": [player.player_id for player in self.roster.players], "results": list(self._results)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`.

        Raises:
          ConfigError: the players, or their order, differ.
        """
        check_same_players(self.roster, state)
        self._results = deque(state["results"], maxlen=self.cfg.buffer_size)


SharedPayoff = BattleSharedPayoff | SoloSharedPayoff

PAYOFFS: dict[str, type[BattlePayoffConfig] | type[SoloPayoffConfig]] = {
    "battle": BattlePayoffConfig,
    "solo": SoloPayoffConfig,
}


def create_payoff(cfg: BattlePayoffConfig | SoloPayoffConfig | Mapping[str, Any]) -> SharedPayoff:
    """Return the payoff that ``cfg.type`` names (default: battle).

    Raises:
      ConfigError: there is no such type, or a setting is invalid.
    """
    if isinstance(cfg, Mapping):
        name = cfg.get("type", "battle")
        if name not in PAYOFFS:
            raise ConfigError(
                f"payoff.type: expected one of {', '.join(PAYOFFS)}, found {name!r}{suggestion(name, PAYOFFS)}"
            )
        cfg = checked(PAYOFFS[name], cfg, "payoff")
    return SoloSharedPayoff(cfg) if isinstance(cfg, SoloPayoffConfig) else BattleSharedPayoff(cfg)
