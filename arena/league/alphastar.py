"""The players of AlphaStar's league (Vinyals et al., 2019), the oracle of PSRO, and a self-play player."""

from typing import ClassVar

import numpy as np

from arena.league.matchmaking import draw
from arena.league.player import BattleActivePlayer, Player
from arena.league.settings import (
    BestResponderConfig,
    LeagueExploiterConfig,
    MainExploiterConfig,
    MainPlayerConfig,
    SelfPlayerConfig,
)


class MainPlayer(BattleActivePlayer):
    """Main player: learns to beat every player, and is never reset."""

    Config = MainPlayerConfig
    cfg: MainPlayerConfig
    needs_history = True

    def branch_pfsp(self) -> int:
        """Return a historical player; those that it loses to most are most likely."""
        return self.pfsp(self.payoff.roster.historical(), "squared")

    def branch_sp(self) -> int:
        """Return a random main player, or one of its historical players if it is too strong."""
        roster = self.payoff.roster
        main = draw(roster.active(MainPlayer), self._rng)
        if self.win_rate(main) > 1 - self.cfg.strong_win_rate:
            return main
        return self.pfsp(roster.historical(parent=roster.players[main].player_id), "variance")

    def branch_verification(self) -> int:
        """Return a historical player of the exploiters or main players that still beats it; else as ``branch_sp``."""
        roster = self.payoff.roster
        for kind, threshold in (
            (MainExploiter, self.cfg.exploited_win_rate),
            (MainPlayer, self.cfg.strong_win_rate),
        ):
            history = roster.historical(kind)
            if self.lowest_win_rate(history) < threshold:
                return self.pfsp(history, "squared")
        return self.branch_sp()


class MainExploiter(BattleActivePlayer):
    """Main exploiter: learns to beat the main players, and is reset after each snapshot."""

    Config = MainExploiterConfig
    cfg: MainExploiterConfig
    founds_history = False
    needs_active: ClassVar[tuple[type[Player], ...]] = (MainPlayer,)

    def reference_opponents(self) -> np.ndarray:
        """Return the indices of the active main players."""
        return self.payoff.roster.active(MainPlayer)

    def branch_main_players(self) -> int:
        """Return a random main player, or one of its historical players if it is too strong."""
        roster = self.payoff.roster
        main = draw(roster.active(MainPlayer), self._rng)
        if self.win_rate(main) >= self.cfg.min_valid_win_rate:
            return main
        return self.pfsp(roster.historical(parent=roster.players[main].player_id), "variance")

    def mutate(self) -> bool:
        """Return true."""
        return True


class LeagueExploiter(BattleActivePlayer):
    """League exploiter: learns to beat the whole league, and is sometimes reset after a snapshot."""

    Config = LeagueExploiterConfig
    cfg: LeagueExploiterConfig
    founds_history = False
    needs_history = True

    def branch_pfsp(self) -> int:
        """Return a historical player, by prioritized fictitious self-play."""
        return self.pfsp(self.payoff.roster.historical(), self.cfg.weighting)

    def mutate(self) -> bool:
        """Return true with probability ``mutate_prob``."""
        return self.chance(self.cfg.mutate_prob)


class BestResponsePlayer(BattleActivePlayer):
    """Best response to the Nash mixture of the history: the oracle of PSRO (Lanctot et al., 2017).

    All phases have the same length, so that schedules can end with them: win rates are no measure of progress where the
    mixture is an equilibrium, which no player beats.
    """

    Config = BestResponderConfig
    cfg: BestResponderConfig

    @property
    def steps_between_resets(self) -> int | None:
        """Length of a phase, if every phase begins with a reset."""
        return self.cfg.one_phase_step if self.cfg.mutate_prob == 1 else None

    def is_strong_enough(self) -> bool:
        """Return true."""
        return True

    def mutate(self) -> bool:
        """Return true with probability ``mutate_prob``."""
        return self.chance(self.cfg.mutate_prob)


class SelfPlayer(BattleActivePlayer):
    """Self-play player: meets itself and its own history."""

    Config = SelfPlayerConfig
    cfg: SelfPlayerConfig

    def reference_opponents(self) -> np.ndarray:
        """Return the indices of its own history."""
        return self.payoff.roster.historical(parent=self.player_id)

    def branch_self(self) -> int:
        """Return the player itself, with its current weights."""
        return self.index

    def branch_history(self) -> int:
        """Return a historical player of its own."""
        return self.pfsp(self.payoff.roster.historical(parent=self.player_id), self.cfg.weighting)
