"""The other processes of a server, as one of them sees them: requests are handed on over sockets of the machine."""

import asyncio
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from arena.gateway.answers import JSON, Answer, Refusal
from arena.gateway.client import Address, Connection
from arena.gateway.request import Request

HANDED_ON = (b"game_id", b"step_kind", b"tick_id", b"authorization")
KEPT = ("version", "replayed", "retry-after")
COUNTING = 5  # seconds for which another process is asked what it counts
STARTING = 60  # seconds for which a process that starts is waited for
NOT_SUMMED = ("arena_gateway_version_info", "arena_gateway_loop_lag_seconds", "process_start_time_seconds")


class WorkerPlace(NamedTuple):
    """Which process of a server this is.

    Attributes:
      number, processes: which one of how many.
      descriptor: of the port that it listens on.
      directory: of the sockets by which the processes reach each other.
    """

    number: int
    processes: int
    descriptor: int
    directory: Path

    @classmethod
    def of(cls, text: str) -> "WorkerPlace":
        """Return what ``str`` has written."""
        number, processes, descriptor, directory = text.split(":", 3)
        return cls(int(number), int(processes), int(descriptor), Path(directory))

    def __str__(self) -> str:
        """Return it as an argument of a command line."""
        return f"{self.number}:{self.processes}:{self.descriptor}:{self.directory}"

    def socket_of(self, number: int) -> Path:
        """Return where a process listens for the others."""
        return self.directory / f"{number}.socket"

    def drained_file(self, number: int) -> Path:
        """Return what is there once a process has no more games."""
        return self.directory / f"{number}.drained"


class _PeerConnection(Connection):
    """A connection to another process, which is waited for while it starts."""

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
    """Hands requests on to the process that their game belongs to."""

    def __init__(self, place: WorkerPlace) -> None:
        """Take the place."""
        self._place = place
        self._free: list[list[_PeerConnection]] = [[] for _ in range(place.processes)]

    def owner(self, game_id: bytes) -> int | None:
        """Return which other process a game belongs to; None for this one."""
        owner = zlib.crc32(game_id) % self._place.processes
        return None if owner == self._place.number else owner

    async def step(self, owner: int, request: Request, limit: int) -> Answer:
        """Return what another process answers to a request.

        Args:
          owner: the process.
          request: of a game that is its own.
          limit: bytes of a body.

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
        kept = tuple((name.encode(), reply.headers[name].encode()) for name in KEPT if name in reply.headers)
        kind = reply.headers.get("content-type", JSON.decode()).encode()
        return Answer(reply.body, kind, kept, reply.status, handed_on=True)

    async def metrics(self, request: Request, own: bytes) -> bytes:
        """Return what all processes count, added up; ``own`` is what this one counts."""
        token = request.header(b"authorization")
        headers = {} if token is None else {"authorization": token.decode("latin-1")}
        texts = [own.decode()]
        for index in range(self._place.processes):
            if index != self._place.number:
                connection = _PeerConnection(self._place, index)
                try:
                    reply = await asyncio.wait_for(connection.get("/metrics", headers), COUNTING)
                    texts.append(reply.body.decode() if reply.status == 200 else "")
                except (TimeoutError, asyncio.TimeoutError):  # one that hangs must not hide what the others count
                    pass
                finally:
                    connection.break_off()
        return added_up(texts)

    async def all_drained(self, seconds: float) -> None:
        """Say that this process has no more games, and return when no other has any, or after so many seconds.

        Clients of the others' games may be connected to this one.
        """
        place = self._place
        place.drained_file(place.number).touch()
        until = time.monotonic() + seconds
        while time.monotonic() < until and not all(place.drained_file(n).exists() for n in range(place.processes)):
            await asyncio.sleep(0.02)


def added_up(texts: Iterable[str]) -> bytes:
    """Return texts in the format of Prometheus as one: equal samples are added up, or the greatest is taken."""
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
        said = f"{name}_total" if family.type == "counter" else name
        lines += [f"# HELP {said} {family.documentation}", f"# TYPE {said} {family.type}"]
        for (sample_name, labels), value in values[name].items():
            quoted = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
            lines.append(f"{sample_name}{{{quoted}}} {value}" if quoted else f"{sample_name} {value}")
    return ("\n".join(lines) + "\n").encode()


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
