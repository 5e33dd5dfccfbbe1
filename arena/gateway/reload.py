"""Newer versions of players, loaded while the server serves."""

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from arena.common.errors import ConfigError
from arena.config.gateway import GatewayConfig
from arena.export.metadata import ExportError
from arena.gateway.metrics import Metrics
from arena.gateway.models import LoadedPlayer
from arena.gateway.players import ModelMaker, Player

logger = logging.getLogger(__name__)


class VersionSource(Protocol):
    """Where a player's newer versions come from. It is asked in a thread."""

    def newest(self) -> str | None:
        """Return the newest version, or None where there is none.

        Raises:
          ConfigError: what is there is damaged.
        """

    def load(self) -> LoadedPlayer:
        """Return the newest version, loaded.

        Raises:
          ConfigError: it is damaged, or does not fit.
          ExportError: the file that was made of it says something else than the policy.
        """


class Reloader:
    """Looks for newer versions, and has games act by them."""

    def __init__(
        self,
        players: Mapping[str, Player],
        sources: Mapping[str, VersionSource],
        make: ModelMaker,
        config: GatewayConfig,
        metrics: Metrics,
    ) -> None:
        """Prepare to look.

        Args:
          players: by name.
          sources: of those that newer versions are looked for of.
          make: makes models of what was loaded.
          config: says how often to look, and whether a game keeps to its version.
          metrics: counts what was loaded.
        """
        self._players, self._sources, self._make = players, sources, make
        self._config, self._metrics = config, metrics
        self._thread = ThreadPoolExecutor(1, "reload")
        self._told: dict[str, str] = {}  # player -> what was last said of it

    async def run(self) -> None:
        """Look again and again, until the task is cancelled."""
        while self._sources:
            await asyncio.sleep(self._config.poll)
            for name, source in self._sources.items():
                await self._look(self._players[name], source)

    async def _look(self, player: Player, source: VersionSource) -> None:
        loop = asyncio.get_running_loop()
        player.drop_unused()
        try:
            version = await loop.run_in_executor(self._thread, source.newest)
            if version is None or int(version) <= int(player.newest.version):
                return
            if self._config.pin == "session" and len(player) >= self._config.max_versions:
                self._tell(player.name, f"{player.name}@{version} waits: {len(player)} versions are in use by games")
                return
            loaded = await loop.run_in_executor(self._thread, source.load)
            if self._config.pin == "newest":
                await loop.run_in_executor(self._thread, self._make, loaded)  # it is warm when its turn comes
                await player.newest.replace(loaded)
            else:
                player.adopt(await loop.run_in_executor(self._thread, self._make, loaded))
        except ExportError as error:
            if self._tell(player.name, f"a newer version of {player.name} is refused: {error}"):
                self._metrics.reloaded(player.name, "refused")
        except ConfigError as error:
            if self._tell(player.name, f"a newer version of {player.name} could not be loaded: {error}"):
                self._metrics.reloaded(player.name, "failed")
        except Exception:
            logger.exception("looking for newer versions of %s has failed", player.name)
            self._metrics.reloaded(player.name, "failed")
        else:
            self._metrics.reloaded(player.name, "loaded")
            logger.info("%s is served from now on", player.newest.stamp)

    def _tell(self, name: str, text: str) -> bool:
        """Warn, but not twice in a row of the same; return whether it was said."""
        if self._told.get(name) == text:
            return False
        self._told[name] = text
        logger.warning(text)
        return True
