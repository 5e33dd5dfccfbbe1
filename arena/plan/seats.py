"""Check of a match's seats against the environment's entities."""

from arena.common.errors import ConfigError


def check_seats(where: str, use: str, names: list[str], listed: list[int], remapped: bool) -> None:
    """Check that a match's seats play the entities of its environment.

    Args:
      where: name of the match in messages.
      use: name of the environment in messages.
      names: names of the environment's entities.
      listed: indices of the entities that the seats play.
      remapped: whether the match has the key ``entities``.

    Raises:
      ConfigError: a seat plays an entity that does not exist, or entities are left over unintentionally.
    """
    count = len(names)
    beyond = [entity for entity in listed if entity >= count]
    if remapped and beyond:
        raise ConfigError(
            f"{where}: entity {beyond[0]} is out of range; {use} has {count} entities, 0 to {count - 1} "
            f"({', '.join(names)}); correct `entities:` of the match"
        )
    if not remapped and len(listed) != count:
        raise ConfigError(
            f"{where}: its seats play {len(listed)} entities, but {use} has {count} ({', '.join(names)}); "
            "list one policy for each entity, or set `entities:` to those that are played"
        )
