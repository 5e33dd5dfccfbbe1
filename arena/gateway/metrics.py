"""Counters of a server in Prometheus's format."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily

from arena.gateway.players import Player

PREFIX = "arena_gateway_"
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_ROWS = tuple(2**power for power in range(11))

disable_created_metrics()


class Levels(NamedTuple):
    """Current values.

    Attributes:
      sessions: number of open sessions.
      connections: number of open connections.
      lag: largest delay of the event loop in the last second, in seconds.
    """

    sessions: int
    connections: int
    lag: float


class Metrics:
    """Counters of a server."""

    def __init__(self, players: Mapping[str, Player], sessions_limit: int, levels: Callable[[], Levels]) -> None:
        """Start at zero.

        Args:
          players: players by name.
          sessions_limit: largest number of open games.
          levels: returns the current values.
        """
        self._players, self._limit, self._levels = players, sessions_limit, levels
        self._registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, text, labels, registry=self._registry)

        self._requests = counter("requests", "Requests that were answered.", "kind", "status")
        self._ends = counter("sessions", "Games that have ended.", "end")
        self.replayed = counter("replayed", "Answers that were sent again.")
        self.actor_errors = counter("actor_errors", "Calls of actors that have failed.")
        self._reloads = counter("reloads", "Newer versions.", "player", "result")
        self.experience = counter("experience", "Transition steps.", "player", "fate")
        self.ticks = Histogram(
            PREFIX + "tick_seconds", "From a tick's request to its answer.", buckets=_SECONDS, registry=self._registry
        )
        self._forward = Histogram(
            PREFIX + "forward_seconds", "A forward pass.", ["player"], buckets=_SECONDS, registry=self._registry
        )
        self._batch = Histogram(
            PREFIX + "batch_size", "Rows of a forward pass.", ["player"], buckets=_ROWS, registry=self._registry
        )
        self._registry.register(_Gauges(self._now))
        ProcessCollector(registry=self._registry)
        self._children: dict[tuple[str, int], Counter] = {}
        for name, player in players.items():
            forward, batch = self._forward.labels(name), self._batch.labels(name)
            player.on_batch = _observer(forward, batch)
        for end in ("end", "stop", "idle", "age", "error", "drain"):
            self._ends.labels(end)

    def request(self, kind: str, status: int) -> None:
        """Count a response; ``kind`` is ``other`` outside ``/step``."""
        child = self._children.get((kind, status))
        if child is None:
            child = self._children[kind, status] = self._requests.labels(kind, str(status))
        child.inc()

    def ended(self, ending: str) -> None:
        """Count a game that has ended."""
        self._ends.labels(ending).inc()

    def reloaded(self, player: str, result: str) -> None:
        """Count a newer version that was loaded, refused, or unreadable (failed)."""
        self._reloads.labels(player, result).inc()

    def text(self) -> bytes:
        """Return all metrics in Prometheus's format."""
        return generate_latest(self._registry)

    def _now(self) -> Iterable[GaugeMetricFamily]:
        levels = self._levels()
        waiting = sum(player.waiting for player in self._players.values())
        for name, text, value in (
            (PREFIX + "sessions", "Games that are open.", levels.sessions),
            (PREFIX + "sessions_limit", "Games that may be open.", self._limit),
            (PREFIX + "connections", "Connections that are open.", levels.connections),
            (PREFIX + "forward_queue", "Rows that wait for a forward pass.", waiting),
            (PREFIX + "loop_lag_seconds", "By how much the event loop was late, at worst in a second.", levels.lag),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        versions = GaugeMetricFamily(PREFIX + "version_info", "The newest version.", labels=["player", "version"])
        loaded = GaugeMetricFamily(PREFIX + "versions_loaded", "Versions in memory.", labels=["player"])
        for name, player in self._players.items():
            versions.add_metric([name, player.newest.version], 1)
            loaded.add_metric([name], len(player))
        yield versions
        yield loaded


def _observer(forward: Any, batch: Any) -> Callable[[int, float], None]:
    def observe(rows: int, seconds: float) -> None:
        batch.observe(rows)
        forward.observe(seconds)

    return observe


class _Gauges:
    """Values that are computed on request."""

    def __init__(self, look: Callable[[], Iterable[GaugeMetricFamily]]) -> None:
        self._look = look

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the levels."""
        return self._look()
