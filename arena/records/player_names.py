"""Names of players with their run, ``runs/x:blue@best``, alike in all commands and in Python."""

from pathlib import Path

from arena.common.errors import ConfigError


def split_run(text: str | Path) -> tuple[Path, str]:
    """Return a run directory, and the name of a player that follows it behind a colon.

    Args:
      text: ``runs/x``, or ``runs/x:blue``, ``runs/x:blue@best``, ``runs/x:blue@2000``.

    Returns:
      ``runs/x``, and ``blue@best`` as written; an empty name if there is none.
    """
    folder, colon, name = str(text).rpartition(":")
    if not colon or not folder or "/" in name or Path(text).exists():
        return Path(text), ""
    return Path(folder), name


def named_player(text: str | Path, player: str | None) -> tuple[Path, str | None]:
    """Return a run directory and a player's name, which stands behind the directory or is given apart.

    Raises:
      ConfigError: both name a player.
    """
    path, name = split_run(text)
    if name and player is not None:
        raise ConfigError(f"expected a player once, found {name!r} in {str(text)!r} and {player!r} beside it")
    return path, name or player


def split_version(name: str, at: str, default: str) -> tuple[str, str]:
    """Return a player's name without its weights, and the weights: those of the name, or of the argument ``at``.

    Raises:
      ConfigError: both choose some.
    """
    player, behind, chosen = name.partition("@")
    if not behind:
        return name, at
    if at not in (default, chosen):
        raise ConfigError(f"expected weights once, found {name!r} and {at!r} beside it")
    return player, chosen
