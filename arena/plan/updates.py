"""Sizes of the updates of a plan's players: whether others change beside them, and notes about their sizes; pure."""

from collections.abc import Collection
from typing import Any

from arena.common import registry
from arena.common.text import count_of
from arena.config.rounds import Round
from arena.config.run import RunConfig
from arena.plan.assignment import Plan, lanes_of_group

TOO_LARGE = 16
"""Ratio of a minibatch to the default one from which a dry run warns: gradients hardly become more exact."""


def among_changing_players(config: RunConfig, round_: Round) -> set[str]:
    """Return the players that meet others which change: others that learn, or that a league draws."""
    if config.league is not None:
        return {seat.player for row in round_.rows for seat in row.seats if len(row.seats) > 1}
    found: set[str] = set()
    for row in round_.rows:
        names = {seat.player for seat in row.all_seats}
        learning = {name for name in names if config.players[name].learns}
        found |= names if len(learning) > 1 else names - learning if learning else set()
    return found


def sized_settings(config: RunConfig, player: str, changing: Collection[str]) -> Any:
    """Return the settings of a player's policy if they have an ``update_size``, with their defaults resolved.

    None for other policies, and for players that do not learn.

    Args:
      config: configuration of the run.
      player: name of the player.
      changing: the players that meet others which change.
    """
    policy = config.players[player]
    model = registry.policy_settings_model(policy.use)
    if not policy.learns or model is None or not hasattr(model, "update_size"):
        return None
    return model(**policy.settings).among(changing_players=player in changing)


def notes_on_updates(config: RunConfig, round_: Round, planned: Plan) -> list[str]:
    """Return lines about sizes of updates: those that follow from changing players, and those that learn too little.

    Observations count as vectors.
    """
    notes, sizes = [], dict[str, list[str]]()
    changing_players = among_changing_players(config, round_)
    for player in planned.places:
        settings = sized_settings(config, player, changing_players)
        if settings is None:
            continue
        lanes, entities = lanes_of_group(planned, player)
        size, budget = settings.update_size(lanes, entities), round_.budget(player)
        transitions = size.horizon * lanes
        parts = count_of(size.minibatches, "minibatch", "minibatches")
        if settings.changing_players and not settings.has_own_sizes:
            update = (
                f"updates of {transitions:,} transitions ({count_of(lanes, 'lane')} x horizon {size.horizon:,}) in "
                f"{count_of(size.epochs, 'epoch')} of {parts}"
            )
            sizes.setdefault(update, []).append(player)
        if 2 * transitions > budget:
            notes.append(
                f"{player} learns twice at most: an update takes {transitions:,} transitions "
                f"({count_of(lanes, 'lane')} x horizon {size.horizon:,}) of a budget of {budget:,}; lower num_envs "
                "or horizon, or raise steps"
            )
        elif transitions > size.minibatches * size.usual_minibatch * TOO_LARGE:
            notes.append(
                f"{player} learns little from each transition: an epoch has {parts} of "
                f"{transitions // size.minibatches:,} transitions, over {TOO_LARGE} times the usual "
                f"{size.usual_minibatch}; raise minibatches, or lower num_envs or horizon"
            )
    changing = [f"{_names(players)}: {update}, since other players change" for update, players in sizes.items()]
    return changing + notes


def _names(players: list[str], most: int = 4) -> str:
    """Return names of players, or their number if there are many."""
    return ", ".join(players) if len(players) <= most else f"{players[0]} and {len(players) - 1} more players"
