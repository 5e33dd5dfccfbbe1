"""The other processes of a server, as seen by one of them: requests are forwarded over local sockets."""

import asyncio
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from arena.gateway.client import Address, Connection
from arena.gateway.http.request import Request
from arena.gateway.http.responses import JSON, Refusal, Response

HANDED_ON = (b"game_id", b"step_kind", b"tick_id", b"authorization")
KEPT = ("version", "replayed", "retry-after")
COUNTING = 5  # seconds for a query of another process's counters
STARTING = 60  # seconds for another process to start
NOT_SUMMED = ("arena_gateway_version_info", "arena_gateway_loop_lag_seconds", "process_start_time_seconds")


class WorkerPlace(NamedTuple):
    """Identity of one process of a server.

    Attributes:
      number, processes: index of this one, and number of processes.
      descriptor: descriptor of the port that it listens on.
      directory: directory of the sockets between the processes.
    """

    number: int
    processes: int
    descriptor: int
    directory: Path

    @classmethod
    def of(cls, text: str) -> "WorkerPlace":
        """Return the place that ``str`` has written."""
        number, processes, descriptor, directory = text.split(":", 3)
        return cls(int(number), int(processes), int(descriptor), Path(directory))

    def __str__(self) -> str:
        """Return it as a command-line argument."""
        return f"{self.number}:{self.processes}:{self.descriptor}:{self.directory}"

    def socket_of(self, number: int) -> Path:
        """Return the path of a process's socket for the others."""
        return self.directory / f"{number}.socket"

    def drained_file(self, number: int) -> Path:
        """Return the path of the file that marks a process without open games."""
        return self.directory / f"{number}.drained"


class _PeerConnection(Connection):
    """A connection to another process, which may still be starting."""

    def __init__(self, place: WorkerPlace, number: int) -> None:
        super().__init__(Address("localhost", 0, None))
        self._path, self._drained = place.socket_of(number), place.drained_file(number)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        until = time.monotonic() + STARTING
        while True:
            try:
                return await asyncio.open_unix_connection(str(self._path))
            except FileNotFoundError:
                if self._drained.exists() or time.monotonic() > until:
                    raise
                await asyncio.sleep(0.05)


class Peers:
    """Forwards requests to the process that owns their game."""

    def __init__(self, place: WorkerPlace) -> None:
        """Store the place."""
        self._place = place
        self._free: list[list[_PeerConnection]] = [[] for _ in range(place.processes)]

    def owner(self, game_id: bytes) -> int | None:
        """Return the other process that owns a game; None for this one."""
        owner = zlib.crc32(game_id) % self._place.processes
        return None if owner == self._place.number else owner

    async def step(self, owner: int, request: Request, limit: int) -> Response:
        """Return another process's response to a request.

        Args:
          owner: the process.
          request: request of one of its games.
          limit: largest size of a body in bytes.

        Raises:
          Refusal: the body is too long, or the process is gone.
        """
        headers = {name.decode(): value.decode("latin-1") for name in HANDED_ON if (value := request.header(name))}
        body = await request.body(limit)
        free = self._free[owner]
        connection = free.pop() if free else _PeerConnection(self._place, owner)
        reply = await connection.post("/step", headers, body)
        if not reply.status:
            raise Refusal(503, "draining", "the server is closing; no new games", (b"retry-after", b"5"))
        free.append(connection)
        forwarded = tuple((name.encode(), reply.headers[name].encode()) for name in KEPT if name in reply.headers)
        kind = reply.headers.get("content-type", JSON.decode()).encode()
        return Response(reply.body, kind, forwarded, reply.status, handed_on=True)

    async def metrics(self, request: Request, own: bytes) -> bytes:
        """Return the counters of all processes, added up; ``own`` are those of this one."""
        token = request.header(b"authorization")
        headers = {} if token is None else {"authorization": token.decode("latin-1")}
        texts = [own.decode()]
        for index in range(self._place.processes):
            if index != self._place.number:
                connection = _PeerConnection(self._place, index)
                try:
                    reply = await asyncio.wait_for(connection.get("/metrics", headers), COUNTING)
                    texts.append(reply.body.decode() if reply.status == 200 else "")
                except (TimeoutError, asyncio.TimeoutError):  # one that hangs must not hide the others' counters
                    pass
                finally:
                    connection.break_off()
        return added_up(texts)

    async def all_drained(self, seconds: float) -> None:
        """Mark this process as drained, and return when all others are, or after ``seconds``.

        Clients of the others' games may be connected to this one.
        """
        place = self._place
        place.drained_file(place.number).touch()
        until = time.monotonic() + seconds
        while time.monotonic() < until and not all(place.drained_file(n).exists() for n in range(place.processes)):
            await asyncio.sleep(0.02)


def added_up(texts: Iterable[str]) -> bytes:
    """Return texts in Prometheus's format as one: equal samples are added, or the greatest is taken."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            families.setdefault(family.name, family)
            samples = values.setdefault(family.name, {})
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                if family.name in NOT_SUMMED:
                    samples[key] = max(samples.get(key, sample.value), sample.value)
                else:
                    samples[key] = samples.get(key, 0.0) + sample.value
    lines = []
    for name, family in families.items():
        metric = f"{name}_total" if family.type == "counter" else name
        lines += [f"# HELP {metric} {family.documentation}", f"# TYPE {metric} {family.type}"]
        for (sample_name, labels), value in values[name].items():
            quoted = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
            lines.append(f"{sample_name}{{{quoted}}} {value}" if quoted else f"{sample_name} {value}")
    return ("\n".join(lines) + "\n").encode()


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
