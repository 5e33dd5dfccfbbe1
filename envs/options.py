"""Keys of ``env`` that state what an environment itself leaves open."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.envs.interface import EntitySpaces

Keys = str | Sequence[str]


class AdapterOptions(NamedTuple):
    """The keys of ``env`` that every adapter obeys.

    Attributes:
      agents: ``auto``, or the way in which several agents are presented: ``tuple`` (Tuple spaces and lists), ``single``
        (one entity, whatever its spaces are), ``parallel`` (all agents that are present act in each step).
      action_mask: masks that are obeyed: ``auto`` (those that the environment declares), ``info`` (those in the info of
        each step, which must be there) or ``none``.
      observe: keys that are kept of observations that are Dicts, for all entities or by an entity's name. A list keeps
        a Dict; a single key is replaced by that part. None keeps everything.
    """

    agents: str = "auto"
    action_mask: str = "auto"
    observe: Keys | Mapping[str, Keys] | None = None

    def keys_of(self, name: str) -> Keys | None:
        """Return the keys that an entity observes; None for everything."""
        return self.observe.get(name) if isinstance(self.observe, Mapping) else self.observe

    def warns_of_masks(self, entities: Sequence[EntitySpaces]) -> bool:
        """Return whether masks in infos are ignored without the configuration stating it."""
        return self.action_mask == "auto" and not any(entity.mask_size for entity in entities)

    def check_names(self, names: Sequence[str]) -> None:
        """Check that ``observe`` names entities that exist.

        Raises:
          ConfigError: it does not.
        """
        for name in self.observe if isinstance(self.observe, Mapping) else ():
            if name not in names:
                raise ConfigError(
                    f"env.observe: expected names of entities ({', '.join(names)}), found {name!r}"
                    f"{suggestion(name, names)}"
                )


NO_OPTIONS = AdapterOptions()


def observed_part(name: str, space: spaces.Space, keys: Keys) -> spaces.Space:
    """Return the part of an observation space with these keys.

    Raises:
      ConfigError: it is not a Dict, or has no such key.
    """
    listed = [keys] if isinstance(keys, str) else list(keys)
    if not isinstance(space, spaces.Dict):
        raise ConfigError(f"env.observe: expected an entity that observes a Dict, found {space} for entity {name!r}")
    for key in listed:
        if key not in space.spaces:
            raise ConfigError(
                f"env.observe: expected keys of the observation of entity {name!r} ({', '.join(space.spaces)}), found "
                f"{key!r}{suggestion(key, list(space.spaces))}"
            )
    return space.spaces[keys] if isinstance(keys, str) else spaces.Dict({key: space.spaces[key] for key in listed})
