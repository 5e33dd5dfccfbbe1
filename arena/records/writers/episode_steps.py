"""Transition steps of the players of an episode when it ended, from the counts of its match."""

from collections.abc import Mapping

from arena.protocol.messages import Episode
from arena.records.player_statistics import PlayerStatistics, entities_by_player


class EpisodeSteps:
    """Computes the transition steps that players had taken in the run at the end of an episode.

    They follow from the steps in the match, not from the root's counts at the time of the report.
    """

    def __init__(self, players: Mapping[str, PlayerStatistics], deterministic: bool) -> None:
        """Use the players' running counts; a deterministic run reads them when all steps of its stretch are counted."""
        self._players, self._deterministic = players, deterministic
        self.begin_round()

    def begin_round(self) -> None:
        """Reset the counts of matches."""
        self._began_at = {name: statistics.steps for name, statistics in self._players.items()}
        self._shares: Mapping[tuple[str, int], float] = {}
        self._ends: Mapping[str, int] = {}
        self._finished: set[str] = set()

    def begin_matches(self, shares: Mapping[tuple[str, int], float], ends: Mapping[str, int]) -> None:
        """Set the relation between the steps of a match and those of its players.

        Args:
          shares: (player, match) -> its total transition steps for each one that it takes in the match.
          ends: steps of each learning player in the run at which its budget for this round is spent.
        """
        self._shares, self._ends = shares, ends

    def finish(self, player: str) -> None:
        """Record that a player's budget for this round is spent: later steps are not transition steps."""
        self._finished.add(player)

    def at_end(self, episode: Episode) -> dict[str, int]:
        """Return the transition steps in the run that each player of an episode had taken when it ended."""
        steps_of_player = {}
        for player in entities_by_player(episode.players):
            statistics = self._players.get(player)
            steps_of_player[player] = known = 0 if statistics is None else statistics.steps
            share = self._shares.get((player, episode.match))
            if statistics is None or share is None or player not in episode.steps:
                continue
            steps = steps_of_player[player] = self._began_at[player] + round(episode.steps[player] * share)
            if steps <= known:
                continue
            if player in self._finished or self._deterministic:
                steps_of_player[player] = known
            elif player in self._ends:  # the last update exceeds the budget, but no more than one does
                steps_of_player[player] = max(known, min(steps, self._ends[player] + statistics.update_steps))
        return steps_of_player
