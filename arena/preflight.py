"""What can be checked before any rank starts: that every environment of the table exists and fits its seats."""

from arena import registry
from arena.config import EnvConfig, RunConfig
from arena.errors import ConfigError
from arena.layout import plan, ranks_needed


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


def entity_names(env: EnvConfig) -> list[str]:
    """Make the environment once and return the names of its entities.

    Raises:
      ConfigError: it cannot be made; the message says why.
    """
    wrappers = [(wrapper.use, wrapper.settings) for wrapper in env.wrappers]
    environment = registry.make_environment(env.use, env.settings, wrappers)
    try:
        return [entity.name for entity in environment.entities]
    finally:
        environment.close()


def check_environments(config: RunConfig) -> None:
    """Make each distinct environment of the table once and hold the matches against it.

    Raises:
      ConfigError: an environment cannot be made, or the seats do not fit it.
    """
    known: dict[str, list[str]] = {}
    for round_ in config.round_list():
        planned = plan(round_.rows, [0] * ranks_needed(round_.rows))
        for match in planned.matches:
            if match.replica:
                continue
            env = round_.rows[match.row].env
            key = env.model_dump_json(include={"use", "settings", "wrappers"})
            if key not in known:
                known[key] = entity_names(env)
            listed = [entity for seat in match.seats for entity in seat.entities]
            check_seats(f"match row {match.row}", env.use, known[key], listed, round_.rows[match.row].remapped)
