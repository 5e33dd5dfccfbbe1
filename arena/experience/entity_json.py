"""Entities with their spaces as JSON."""

import json
from pathlib import Path
from typing import Any

from arena.common.errors import ConfigError
from arena.common.space_json import space_from_json, space_to_json
from arena.envs.interface import EntitySpaces, Team


def entity_to_json(entity: EntitySpaces) -> dict[str, Any]:
    """Return an entity's spaces, and the entities of its seat if there are several, as a JSON object."""
    data: dict[str, Any] = {
        "name": entity.name,
        "observation": space_to_json(entity.observation),
        "action": space_to_json(entity.action),
        "mask_size": entity.mask_size,
    }
    if entity.team is not None and len(entity.team.entities) > 1:
        entities = [entity_to_json(each._replace(team=None)) for each in entity.team.entities]
        data["team"] = {"entities": entities, "positions": list(entity.team.positions)}
    return data


def entity_from_json(data: Any) -> EntitySpaces:
    """Return the entity that ``entity_to_json`` has written.

    Raises:
      ConfigError: it is no such object.
    """
    try:
        name, mask_size = str(data["name"]), int(data["mask_size"])
        observation, action = data["observation"], data["action"]
        team = None
        if "team" in data:
            entities = tuple(entity_from_json(each) for each in data["team"]["entities"])
            team = Team(entities, tuple(map(int, data["team"]["positions"])))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"expected an entity's spaces as JSON, found {str(data)[:80]}") from error
    return EntitySpaces(name, space_from_json(observation), space_from_json(action), mask_size, team=team)


def read_entity(path: Path) -> EntitySpaces:
    """Return an entity's spaces from a file.

    Raises:
      ConfigError: the file cannot be read, or has another content.
    """
    try:
        return entity_from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: expected an entity's spaces as JSON, found: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
