"""Registered names of player types and kinds of league, and references to those in a user's file."""

import re
from collections.abc import Mapping
from typing import Any

from arena.common import registry
from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.league.payoff import SharedPayoff
from arena.league.player import ActivePlayer
from arena.league.settings import PlayerConfig

PLAYERS = {
    "solo_active_player": "arena.league.player:SoloActivePlayer",
    "battle_active_player": "arena.league.player:BattleActivePlayer",
    "main_player": "arena.league.alphastar:MainPlayer",
    "main_exploiter": "arena.league.alphastar:MainExploiter",
    "league_exploiter": "arena.league.alphastar:LeagueExploiter",
    "best_responder": "arena.league.alphastar:BestResponsePlayer",
    "self_player": "arena.league.alphastar:SelfPlayer",
}


def player_type(name: str) -> type[ActivePlayer]:
    """Return the class that ``name`` stands for: a registered name, or a reference to code.

    Raises:
      ConfigError: there is none, or it is not an active player.
    """
    return class_of(name, PLAYERS, "player type", ActivePlayer)


def player_type_id(name: str) -> str:
    """Return the form of a player type in the ids of its players: ``file.py:MyPlayer`` -> ``my_player``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.rpartition(":")[2]).lower()


def create_player(
    player_type_name: str,
    cfg: PlayerConfig | Mapping[str, Any],
    category: str,
    payoff: SharedPayoff,
    checkpoint_path: str,
    player_id: str,
    total_agent_step: int = 0,
    *,
    seed: int = 0,
) -> ActivePlayer:
    """Return a new active player; the arguments are :class:`~arena.league.player.ActivePlayer`'s.

    Raises:
      ConfigError: there is no such type, or a setting is invalid.
    """
    kind = player_type(player_type_name)
    return kind(cfg, category, payoff, checkpoint_path, player_id, total_agent_step, seed=seed)


def class_of(name: str, registered: Mapping[str, str], noun: str, base: type) -> Any:
    """Return the class that ``name`` stands for: a registered name, or a reference to code.

    Args:
      name: name in a configuration.
      registered: registered name -> reference to code.
      noun: kind of the class, for messages.
      base: class that it must extend.

    Raises:
      ConfigError: there is none, or it has another base class.
    """
    if name not in registered and not registry.is_reference(name):
        raise ConfigError(
            f"unknown {noun} {name!r}{suggestion(name, registered)}; expected one of "
            f"{', '.join(sorted(registered))}, package.module:name or path/to/file.py:name"
        )
    registered_class = registry.load(registered.get(name, name))
    if not (isinstance(registered_class, type) and issubclass(registered_class, base)):
        raise ConfigError(f"{noun} {name!r}: expected a class that extends {base.__name__}, found {registered_class!r}")
    return registered_class
