"""Loss of a player's return when a file acts instead of the policy."""

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from arena.common.seeding import derive_seed
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.evaluation.observed import COPIES, match_of
from arena.evaluation.play import Acting, play
from arena.export.metadata import ExportMetadata
from arena.export.policy import ExportedPolicy
from arena.export.runtimes import Run
from arena.records.run_directory import RunDirectory


class ReturnLoss(NamedTuple):
    """Mean returns of the same episodes.

    Attributes:
      episodes: number of episodes of each.
      policy, file: mean return of each.
      margin: half the width of the 95 % interval of their difference.
    """

    episodes: int
    policy: float
    file: float
    margin: float

    def __str__(self) -> str:
        """Return a line for the terminal."""
        loss = self.policy - self.file
        return (
            f"{self.episodes} episodes: mean return {self.policy:.4g} by the policy, {self.file:.4g} by the file; loss "
            f"{loss:.3g} (95 % interval {loss - self.margin:.3g} to {loss + self.margin:.3g})"
        )


def return_loss(
    run: RunDirectory, config: RunConfig, about: ExportMetadata, run_file: Run, row: TableRow, episodes: int, seed: int
) -> ReturnLoss:
    """Return a file's loss of its player's return, both by their most likely actions.

    Args:
      run: run directory with the weights of all players of the match.
      config: configuration of the run.
      about: metadata of the file, with its player and version.
      run_file: runs the file.
      row: the match.
      episodes: number of episodes of each.
      seed: seed of the episodes, the same for both.

    Raises:
      ConfigError: a player of the match has no weights or cannot play.
    """
    snapshot = run.snapshot(about.player, about.steps).is_file()
    name = f"{about.player}@{about.steps}" if snapshot else about.player
    losses = []
    for by_file in (False, True):
        with match_of(run, config, name, row, seed, deterministic=True) as (environments, agents, seats):
            for seat in seats if by_file else ():
                by_its_file = ExportedPolicy(run_file, about, COPIES * len(agents[seat].entities))
                agents[seat].wrap_policy(partial(_instead, by_its_file))
            results = play(environments, agents, episodes, derive_seed(seed, "return loss"))
            losses.append(np.array([_return(result.players, result.returns, name) for result in results]))
    policy, file = losses
    spread = math.sqrt(sum(float(returns.var(ddof=1)) / len(returns) for returns in losses)) if episodes > 1 else 0.0
    return ReturnLoss(episodes, float(policy.mean()), float(file.mean()), 1.96 * spread)


def _instead(acting: ExportedPolicy, policy: Acting) -> ExportedPolicy:
    """Return an acting file in the form of the policy that it replaces."""
    return acting


def _return(players: tuple[str, ...], returns: tuple[float, ...], name: str) -> float:
    """Return the mean over the player's entities."""
    return float(np.mean([value for player, value in zip(players, returns, strict=True) if player == name]))
