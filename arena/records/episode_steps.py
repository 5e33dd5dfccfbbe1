"""How far the players of an episode were when it ended, from what its match knows of them."""

from collections.abc import Mapping

from arena.protocol.messages import Episode
from arena.records.player_statistics import PlayerStatistics, entities_by_player


class EpisodeSteps:
    """Works out the transition steps that players had taken in the run at the end of an episode.

    They follow from the steps in the match, rather than from what the root knows when it hears of the episode.
    """

    def __init__(self, players: Mapping[str, PlayerStatistics], deterministic: bool) -> None:
        """Take the players' counts, which go on; a deterministic run asks when all steps of its stretch are known."""
        self._players, self._deterministic = players, deterministic
        self.begin_round()

    def begin_round(self) -> None:
        """Have matches count from zero again."""
        self._began_at = {name: statistics.steps for name, statistics in self._players.items()}
        self._shares: Mapping[tuple[str, int], float] = {}
        self._ends: Mapping[str, int] = {}
        self._finished: set[str] = set()

    def begin_matches(self, shares: Mapping[tuple[str, int], float], ends: Mapping[str, int]) -> None:
        """Take what says how far a player is when one of its matches has got somewhere.

        Args:
          shares: (player, match) -> its transition steps altogether for each one that it takes in the match.
          ends: of each player that learns, its steps in the run with which its budget for this round is spent.
        """
        self._shares, self._ends = shares, ends

    def finish(self, player: str) -> None:
        """Note that a player's budget for this round is spent: what it plays after that are no transition steps."""
        self._finished.add(player)

    def at_end(self, episode: Episode) -> dict[str, int]:
        """Return the transition steps in the run that each player of an episode had taken when it ended."""
        found = {}
        for player in entities_by_player(episode.players):
            statistics = self._players.get(player)
            found[player] = known = 0 if statistics is None else statistics.steps
            share = self._shares.get((player, episode.match))
            if statistics is None or share is None or player not in episode.steps:
                continue
            steps = found[player] = self._began_at[player] + round(episode.steps[player] * share)
            if steps <= known:
                continue
            if player in self._finished or self._deterministic:
                found[player] = known
            elif player in self._ends:  # the last update goes beyond the budget, but no more than one goes
                found[player] = max(known, min(steps, self._ends[player] + statistics.update_steps))
        return found
