"""The players of a league in order of arrival, with cached lists of candidates for matchmaking."""

from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from arena.common.errors import ConfigError


class Roster:
    """Players by id and by index; an index is assigned in order of arrival, and never changes.

    Lists of indices are kept per kind, so that choosing among 10,000 players touches no Python object per player.
    """

    def __init__(self) -> None:
        self.players: list[Any] = []
        self._index: dict[str, int] = {}
        self._lists: defaultdict[Hashable, list[int]] = defaultdict(list)
        self._arrays: dict[Hashable, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.players)

    def __contains__(self, player_id: object) -> bool:
        return isinstance(player_id, str) and player_id in self._index

    def add(self, player: Any) -> int:
        """Add a player and return its index.

        Raises:
          ConfigError: the id is taken.
        """
        if player.player_id in self._index:
            raise ConfigError(f"expected players with ids of their own, found {player.player_id!r} twice")
        index = self._index[player.player_id] = len(self.players)
        self.players.append(player)
        keys: list[Hashable] = [("kind", player.active, kind) for kind in player.origin.__mro__]
        if not player.active:
            keys.append(("parent", player.parent_id))
        for key in keys:
            self._lists[key].append(index)
            self._arrays.pop(key, None)
        return index

    def index(self, player_id: str) -> int:
        """Return a player's index.

        Raises:
          KeyError: there is no such player.
        """
        return self._index[player_id]

    def active(self, kind: type = object) -> np.ndarray:
        """Return the indices of active players that are of ``kind``."""
        return self._array(("kind", True, kind))

    def historical(self, kind: type = object, *, parent: str | None = None) -> np.ndarray:
        """Return the indices of historical players with parents of ``kind``, or of those of one ``parent``."""
        return self._array(("kind", False, kind) if parent is None else ("parent", parent))

    def _array(self, key: Hashable) -> np.ndarray:
        array = self._arrays.get(key)
        if array is None:
            array = np.array(self._lists.get(key, ()), dtype=np.intp)
            array.flags.writeable = False
            self._arrays[key] = array
        return array


def check_same_players(roster: Roster, state: Mapping[str, Any]) -> None:
    """Check that ``state`` was saved with the players of ``roster``.

    Raises:
      ConfigError: the players, or their order, differ.
    """
    ids = [player.player_id for player in roster.players]
    if state["players"] != ids:
        other = next(
            (id_ for id_ in (*ids, *state["players"]) if (id_ in ids) != (id_ in state["players"])), "the order"
        )
        raise ConfigError(
            f"the saved league has {len(state['players'])} players, this one {len(ids)}, and they differ in {other!r}; "
            f"resume with the configuration that the league was saved with"
        )
