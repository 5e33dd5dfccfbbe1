"""The initial players of a league, and checks that the league can run."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.league.battle_payoff import BattleSharedPayoff
from arena.league.catalog import create_player, player_type, player_type_id
from arena.league.payoff import SharedPayoff
from arena.league.player import ActivePlayer, BattleActivePlayer, HistoricalPlayer
from arena.league.settings import LeagueConfig

WEIGHTS = "players/{player_id}/latest.safetensors"


def initial_players(
    cfg: LeagueConfig,
    default_players: Mapping[str, int],
    default_settings: Mapping[str, Mapping[str, Any]],
    payoff: SharedPayoff,
) -> Iterator[ActivePlayer]:
    """Yield the active players, ids ``{type}_{category}_{i}``.

    Raises:
      ConfigError: a category has no players, a type is unknown or needs another payoff, or settings match no player.
    """
    categories = {"default": dict(default_players)} if cfg.categories is None else cfg.categories
    if not categories:
        raise ConfigError("league.categories: expected at least one category, found none")
    for category, counts in categories.items():
        if not sum(counts.values()):
            raise ConfigError(
                f"league.categories.{category}: expected at least one active player, found none; "
                f"give it some (main_player: 1) or leave the category out"
            )
    names = list(dict.fromkeys(name for counts in categories.values() for name, n in counts.items() if n))
    for name in names:
        player_type(name)
    for name in cfg.players:
        if name not in names:
            raise ConfigError(
                f"league.players.{name}: settings for a player type that this league does not have"
                f"{suggestion(name, names)}; the types of this league are {', '.join(names)}"
            )
    for category in cfg.pretrained:
        if category not in categories:
            raise ConfigError(
                f"league.pretrained.{category}: there is no such category{suggestion(category, categories)}; "
                f"expected some of {', '.join(categories)}"
            )
    for category, counts in categories.items():
        for name, count in counts.items():
            settings = {**default_settings.get(name, {}), **cfg.players.get(name, {})}
            for i in range(count):
                player_id = f"{player_type_id(name)}_{category}_{i}"
                path = WEIGHTS.format(player_id=player_id)
                player = create_player(name, settings, category, payoff, path, player_id, seed=cfg.seed)
                _check_payoff(player)
                yield player


def initial_history(
    cfg: LeagueConfig, players: Sequence[ActivePlayer]
) -> tuple[list[HistoricalPlayer], dict[str, str]]:
    """Return the first historical players, and the weights for resets by active player's id.

    The parent of each is an existing active player of its category.

    Raises:
      ConfigError: a pretrained weights file is missing.
    """
    for category, path in cfg.pretrained.items():
        if not Path(path).is_file():
            raise ConfigError(f"league.pretrained.{category}: expected a weights file, found none at {path!r}")
    history: list[HistoricalPlayer] = []
    resets: dict[str, str] = {}
    for player in players:
        pretrained = cfg.pretrained.get(player.category)
        resets[player.player_id] = pretrained or player.path_beside("0")
        peers = [peer for peer in players if peer.category == player.category]
        founders = [peer for peer in peers if peer.founds_history] or (peers[:1] if pretrained else [])
        if player in founders:
            player_id = f"{player.player_id}_{'pretrained' if pretrained else '0'}"
            history.append(player.frozen(player_id, resets[player.player_id]))
    return history, resets


def check(cfg: LeagueConfig, players: Sequence[ActivePlayer], history: Sequence[HistoricalPlayer]) -> None:
    """Check that every player can find opponents.

    Raises:
      ConfigError: a player lacks reference opponents, or players that it could meet.
    """
    for player in players:
        for kind in player.needs_active:
            if not any(isinstance(other, kind) for other in players):
                raise ConfigError(
                    f"{player.player_id}: expected a {kind.__name__} among the active players, found none; "
                    f"without one it could never be measured; add {player_type_id(kind.__name__)}: 1 to a category"
                )
        if player.needs_history and not history:
            raise ConfigError(
                f"{player.player_id}: expected a first historical player to meet, found none; "
                f"add main_player: 1 to a category, or name a weights file in league.pretrained"
            )
        if isinstance(player, BattleActivePlayer) and len(players) < 2 and player.cfg.branch_probs.get("round_robin"):
            raise ConfigError(f"{player.player_id}: expected two active players for a round robin, found one")


def _check_payoff(player: ActivePlayer) -> None:
    battle = isinstance(player.payoff, BattleSharedPayoff)
    if player.battle != battle:
        actual, expected = ("battle", "solo") if battle else ("solo", "battle")
        raise ConfigError(
            f"{player.player_id}: expected a {expected} payoff for this type of player, found {actual!r}; "
            f"set league.payoff.type to {expected}, or choose another type"
        )
