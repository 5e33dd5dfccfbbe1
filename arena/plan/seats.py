"""Whether the seats of a match fit the environment's entities."""

from arena.common.errors import ConfigError


def check_seats(where: str, use: str, names: list[str], listed: list[int], remapped: bool) -> None:
    """Hold the entities that a match's seats play against those that its environment has.

    Args:
      where: how messages call the match.
      use: how they call the environment.
      names: of the environment's entities.
      listed: the entities that the seats play.
      remapped: whether the match says with ``entities:`` which ones are played.

    Raises:
      ConfigError: a seat plays an entity that does not exist, or entities are left over by mistake.
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
            "list one policy for each entity, or say with `entities:` which ones are played"
        )
