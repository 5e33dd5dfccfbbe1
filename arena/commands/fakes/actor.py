"""``arena fake-actor``: a server with the same reply for every game, to test a game's client without a run."""

import argparse
import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from arena.commands.gateway_options import add_gateway_options, gateway_config, log_requests
from arena.common.registry import packages_for
from arena.gateway import Actor, Agents


class FakeActor(Actor):
    """An actor with configured replies."""

    content_type = "text/plain; charset=utf-8"

    def __init__(self, agents: Agents, config: Mapping[str, Any], game_id: str, data: bytes) -> None:
        """See ``Actor``; ``config`` has the options of the command."""
        self._config, self._ticks = config, 0

    async def tick(self, data: bytes) -> bytes:
        """Reply to a tick, or fail if a failure is due."""
        self._ticks += 1
        if self._config["delay"]:
            await asyncio.sleep(self._config["delay"])
        if self._config["fail_every"] and self._ticks % self._config["fail_every"] == 0:
            raise RuntimeError(f"this is the failure of tick {self._ticks} requested by --fail-every")
        return bytes(self._config["tick"])

    async def end(self, data: bytes) -> bytes:
        """Reply to the end."""
        return bytes(self._config["end"])


def main(argv: Sequence[str]) -> int:
    """Run ``arena fake-actor``; return the exit code.

    Raises:
      ConfigError: an option is wrong, or the port cannot be opened.
    """
    arguments = _parser().parse_args(argv)
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    config = gateway_config(arguments)
    log_requests(config)
    with packages_for("arena fake-actor"):
        from arena.gateway.actors.seats import Seats
        from arena.gateway.http.app import Gateway
        from arena.gateway.server import opened, serve
    settings = {
        "tick": arguments.tick.encode(),
        "end": arguments.end.encode(),
        "delay": arguments.delay,
        "fail_every": arguments.fail_every,
    }
    with opened(config) as door:
        gateway = Gateway({}, Seats({}, {}), config, FakeActor, settings, door.access)
        return serve(gateway, door, config, f"a fake actor answers at {door.url} ({config.sessions} games)")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "arena fake-actor", description="Give every tick the same answer, to test the client of a game."
    )
    parser.add_argument(
        "--tick", default="fake_actor_tick_return", metavar="TEXT", help="answer to ticks (%(default)s)"
    )
    parser.add_argument("--end", default="fake_actor_end_return", metavar="TEXT", help="answer to an end (%(default)s)")
    parser.add_argument(
        "--delay", type=float, default=0.0, metavar="SECONDS", help="seconds before each answer (%(default)s)"
    )
    parser.add_argument(
        "--fail-every", type=int, default=0, metavar="N", help="fail at every Nth tick of a game (0: never)"
    )
    add_gateway_options(parser, but=("actor", "settings", "agents", "max_batch", "max_wait", "actor_threads"))
    return parser
