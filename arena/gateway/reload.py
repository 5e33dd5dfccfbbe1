"""Loading of newer versions of players while the server serves."""

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
    """Source of a player's newer versions, called in a thread."""

    def newest(self) -> str | None:
        """Return the newest version, or None if there is none.

        Raises:
          ConfigError: the files are damaged.
        """

    def load(self) -> LoadedPlayer:
        """Return the newest version, loaded.

        Raises:
          ConfigError: it is damaged, or does not fit.
          ExportError: the exported file differs from the policy.
        """


class Reloader:
    """Polls for newer versions, and lets games use them."""

    def __init__(
        self,
        players: Mapping[str, Player],
        sources: Mapping[str, VersionSource],
        make: ModelMaker,
        config: GatewayConfig,
        metrics: Metrics,
    ) -> None:
        """Prepare to poll.

        Args:
          players: players by name.
          sources: sources of the players to poll for.
          make: makes models of loaded players.
          config: interval of polls, and whether a game keeps its version.
          metrics: counters of loaded versions.
        """
        self._players, self._sources, self._make = players, sources, make
        self._config, self._metrics = config, metrics
        self._thread = ThreadPoolExecutor(1, "reload")
        self._warned: dict[str, str] = {}  # player -> the last warning about it

    async def run(self) -> None:
        """Poll until the task is cancelled."""
        while self._sources:
            await asyncio.sleep(self._config.poll)
            for name, source in self._sources.items():
                await self._poll(self._players[name], source)

    async def _poll(self, player: Player, source: VersionSource) -> None:
        loop = asyncio.get_running_loop()
        player.drop_unused()
        try:
            version = await loop.run_in_executor(self._thread, source.newest)
            if version is None or int(version) <= int(player.newest.version):
                return
            if self._config.pin == "session" and len(player) >= self._config.max_versions:
                self._warn(player.name, f"{player.name}@{version} waits: {len(player)} versions are in use by games")
                return
            loaded = await loop.run_in_executor(self._thread, source.load)
            if self._config.pin == "newest":
                await loop.run_in_executor(self._thread, self._make, loaded)  # it is warm before it is used
                await player.newest.replace(loaded)
            else:
                player.adopt(await loop.run_in_executor(self._thread, self._make, loaded))
        except ExportError as error:
            if self._warn(player.name, f"a newer version of {player.name} is refused: {error}"):
                self._metrics.reloaded(player.name, "refused")
        except ConfigError as error:
            if self._warn(player.name, f"a newer version of {player.name} could not be loaded: {error}"):
                self._metrics.reloaded(player.name, "failed")
        except Exception:
            logger.exception("looking for newer versions of %s has failed", player.name)
            self._metrics.reloaded(player.name, "failed")
        else:
            self._metrics.reloaded(player.name, "loaded")
            logger.info("%s is served from now on", player.newest.stamp)

    def _warn(self, name: str, text: str) -> bool:
        """Log a warning unless it repeats the last one; return whether it was logged."""
        if self._warned.get(name) == text:
            return False
        self._warned[name] = text
        logger.warning(text)
        return True
