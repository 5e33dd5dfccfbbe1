"""``arena fake-gamecore``: play the game's side against a server, for tests and load."""

import argparse
import asyncio
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from arena.commands.arguments import positive
from arena.common.errors import ConfigError
from arena.gateway.client import Address, Connection, Reply
from arena.gateway.http.access import token_of


def main(argv: Sequence[str]) -> int:
    """Run ``arena fake-gamecore``; return the exit code: 1 if any status was not 200.

    Raises:
      ConfigError: the URL or a file is wrong.
    """
    arguments = _parser().parse_args(argv)
    core = _GameCore(arguments)
    began = time.perf_counter()
    try:
        asyncio.run(core.play())
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    core.print_statistics(time.perf_counter() - began)
    return int(any(status != 200 for status in core.statuses))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "arena fake-gamecore", description="Play the side of a game against a server: start, ticks, end."
    )
    parser.add_argument("url", help="address of the server, such as http://localhost:8000")
    parser.add_argument(
        "--games", type=positive, default=1, metavar="N", help="number of games at the same time (%(default)s)"
    )
    parser.add_argument(
        "--rounds",
        type=positive,
        default=1,
        metavar="N",
        help="number of games, one after the other, in each place (%(default)s)",
    )
    parser.add_argument("--ticks", type=positive, default=100, metavar="N", help="ticks of each game (%(default)s)")
    parser.add_argument("--start", default="", metavar="TEXT", help="body of the start")
    parser.add_argument("--tick", default="fake_gamecore_tick", metavar="TEXT", help="body of each tick (%(default)s)")
    parser.add_argument("--end", default="", metavar="TEXT", help="body of the end")
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="a file with bodies of ticks, one in each line; they are repeated"
    )
    parser.add_argument("--no-tick-id", action="store_true", help="send no tick_id; a request can then not be repeated")
    parser.add_argument("--new-connection", action="store_true", help="open a connection for each request")
    parser.add_argument(
        "--kill", type=float, default=0.0, metavar="P", help="probability that a game vanishes before a tick (0)"
    )
    parser.add_argument(
        "--rate", type=float, metavar="N", help="ticks per second of each game (default: as fast as possible)"
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="the server's token; else ARENA_TOKEN, if it is set"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the random choice of games that vanish (%(default)s)"
    )
    return parser


class _GameCore:
    """Plays games and counts the replies."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._address = Address.of(arguments.url)
        self._random = random.Random(arguments.seed)
        self._ticks = [arguments.tick.encode()] if arguments.data is None else _lines(arguments.data)
        token = token_of(arguments.token_file)
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._name = secrets.token_hex(4)
        self.statuses: Counter[int] = Counter()
        self.games, self.vanished = 0, 0
        self._seconds: list[float] = []
        self._first_refusal: Reply | None = None

    async def play(self) -> None:
        """Play all games."""
        await asyncio.gather(*(self._side(number) for number in range(self._arguments.games)))

    async def _side(self, number: int) -> None:
        """Play one game after the other, until the server rejects one."""
        connection = Connection(self._address, self._headers)
        for round_ in range(self._arguments.rounds):
            self.games += 1
            await self._game(connection, f"{self._name}-{number}-{round_}")
        connection.break_off()

    async def _game(self, connection: Connection, game_id: str) -> None:
        if not await self._request(connection, game_id, "start", 0, self._arguments.start.encode()):
            return
        began = time.perf_counter()
        for tick in range(1, self._arguments.ticks + 1):
            body = self._ticks[(tick - 1) % len(self._ticks)]
            if self._random.random() < self._arguments.kill:
                self.vanished += 1
                await connection.post_and_disconnect("/step", self._step(game_id, "tick", tick), body)
                return
            await self._request(connection, game_id, "tick", tick, body)
            if self._arguments.rate:
                await asyncio.sleep(max(0.0, began + tick / self._arguments.rate - time.perf_counter()))
        await self._request(connection, game_id, "end", self._arguments.ticks + 1, self._arguments.end.encode())

    def _step(self, game_id: str, kind: str, tick: int) -> dict[str, str]:
        headers = {"game_id": game_id, "step_kind": kind}
        return headers if self._arguments.no_tick_id else {**headers, "tick_id": str(tick)}

    async def _request(self, connection: Connection, game_id: str, kind: str, tick: int, body: bytes) -> bool:
        if self._arguments.new_connection:
            connection.break_off()
        began = time.perf_counter()
        reply = await connection.post("/step", self._step(game_id, kind, tick), body)
        if kind == "tick":
            self._seconds.append(time.perf_counter() - began)
        self.statuses[reply.status] += 1
        if reply.status != 200 and self._first_refusal is None:
            self._first_refusal = reply
        return reply.status == 200

    def print_statistics(self, seconds: float) -> None:
        """Print the statistics of the replies."""
        ticks, spent = len(self._seconds), np.array(self._seconds or [0.0]) * 1000
        vanished = f" ({self.vanished} vanished)" if self.vanished else ""
        statuses = ", ".join(f"{status or 'no answer'}: {count:,}" for status, count in sorted(self.statuses.items()))
        print(f"games     {self.games:,}{vanished}")
        print(f"ticks     {ticks:,} in {seconds:.1f} s, {ticks / seconds:,.0f} per second")
        print(f"latency   p50 {np.percentile(spent, 50):.2f} ms, p99 {np.percentile(spent, 99):.2f} ms")
        print(f"statuses  {statuses}")
        if self._first_refusal is not None:
            print(f"first     {self._first_refusal.body.decode('utf-8', 'replace')[:300]}")


def _lines(path: Path) -> list[bytes]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"--data: {path} cannot be read: {error}") from error
    if not lines:
        raise ConfigError(f"--data: expected at least one line in {path}, found none")
    return lines
