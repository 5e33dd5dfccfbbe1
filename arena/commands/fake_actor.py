"""``arena fake-actor``: a server whose every game gets the same answers, to try out a game's client without a run."""

import argparse
import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from arena.commands.gateway_options import add_gateway_options, gateway_config, log_requests
from arena.common.registry import packages_for
from arena.gateway import Actor, Agents


class FakeActor(Actor):
    """Answers what it was told to."""

    content_type = "text/plain; charset=utf-8"

    def __init__(self, agents: Agents, config: Mapping[str, Any], game_id: str, data: bytes) -> None:
        """See ``Actor``; ``config`` has the options of the command."""
        self._said, self._asked = config, 0

    async def tick(self, data: bytes) -> bytes:
        """Answer a tick, or fail where it is the turn of a failure."""
        self._asked += 1
        if self._said["delay"]:
            await asyncio.sleep(self._said["delay"])
        if self._said["fail_every"] and self._asked % self._said["fail_every"] == 0:
            raise RuntimeError(f"this is the failure of tick {self._asked} that --fail-every asks for")
        return bytes(self._said["tick"])

    async def end(self, data: bytes) -> bytes:
        """Answer the end."""
        return bytes(self._said["end"])


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
        from arena.gateway.app import Gateway
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
