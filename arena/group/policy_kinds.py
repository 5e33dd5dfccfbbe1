"""Checks that a policy is of the kind that its match requires, made before a run starts and again by each rank."""

from typing import Any

from arena.common.errors import ConfigError
from arena.config.rounds import TableRow
from arena.config.run import RunConfig


def needs_class(config: RunConfig, row: TableRow, player: str) -> bool:
    """Return whether checking a player's policy on a match requires its class, which may take seconds to import."""
    shares_rank = row.env.in_worker and len(row.seats) > 1
    return bool(config.players[player].learners or shares_rank or _reasons(config, row))


def check_kind(config: RunConfig, row: TableRow, player: str, policy: type) -> None:
    """Check that a player's policy is of the kind that its match requires.

    Args:
      config: configuration of the run.
      row: the match, as an entry of the table.
      player: the player.
      policy: class of its policy.

    Raises:
      ConfigError: it has a custom loop in a match that requires act and learn.
    """
    use = config.players[player].use
    learners = config.players[player].learners
    if not hasattr(policy, "run") or hasattr(policy, "make_model"):
        return
    if row.env.in_worker and len(row.seats) > 1:
        raise ConfigError(
            f"policies.{player}.use: expected a policy that separates act from learn (such as ppo) in a match whose "
            f"seats share a rank, found {use}, which has a loop of its own"
        )
    for key, why in _reasons(config, row):
        raise ConfigError(
            f"{key}: expected policies that separate act from learn (such as ppo), found {use}, which has a loop of "
            f"its own{why}"
        )
    if learners and not hasattr(policy, "learn"):
        raise ConfigError(
            f"policies.{player}.learners: expected a class with learn(batch) beside run, found {use} without"
        )


def _reasons(config: RunConfig, row: TableRow) -> list[tuple[str, Any]]:
    """Return the keys of a run that custom-loop policies do not support, and the reasons."""
    env, outside = row.env, row.outside
    settings = (
        ("league.policy", config.league is not None, "; it cannot play as an opponent"),
        ("deterministic", config.deterministic, ": where it stands between two updates only it could say"),
        ("env.use: gateway", outside, " and takes every copy to be in step"),
        ("env.wait_timeout", env.wait_timeout is not None, " and takes every copy to be in step"),
    )
    return [(key, why) for key, configured, why in settings if configured]
