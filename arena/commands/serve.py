"""``arena serve``: answers over HTTP with what the players of a run have learned."""

import argparse
import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from arena.common.errors import ConfigError
from arena.common.registry import missing_package
from arena.common.validation import problems
from arena.config.gateway import GatewayConfig
from arena.config.run import load_config
from arena.records.run_directory import RunDirectory

AFTER_A_SECOND_SIGNAL = 130
_PAIRS = {"settings": "KEY=VALUE", "agents": "AGENT=PLAYER"}


def main(argv: Sequence[str]) -> int:
    """Run ``arena serve``; return the exit code.

    Raises:
      ConfigError: there is no such run or player, an option is wrong, or the port cannot be opened.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when NumPy and torch load
    arguments = _parser().parse_args(argv)
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    config = gateway_config(arguments)
    if config.access_log:
        _log_requests()
    run = RunDirectory.existing(arguments.run)
    run_config = load_config(run.config)
    try:
        import uvloop

        from arena.gateway.http import listen, make_room_for_files, url_of
    except ImportError as error:
        raise missing_package(error, "arena serve") from error
    from arena.evaluation.players import seed_libraries
    from arena.evaluation.served import load_players
    from arena.gateway.access import Access, is_of_this_machine, token_of
    from arena.gateway.actors.seats import Seats, assign, load_actor, spaces_of
    from arena.gateway.app import Gateway
    from arena.gateway.models import make_models

    token = token_of(config.token_file)
    if token is None and not is_of_this_machine(config.host):
        raise ConfigError(
            f"token_file: expected a file with a token, since {config.host} can be reached from other machines, "
            "found none"
        )
    make_room_for_files(config.sessions)
    with listen(config.host, config.port) as listening:
        seed = run_config.seed if arguments.seed is None else arguments.seed
        seed_libraries(seed)
        actor = load_actor(config.actor)
        spaces = spaces_of(actor, config.settings)
        names = arguments.player or list(run_config.players)
        players = [name.partition("@")[0] for name in names]
        agents = assign(None if spaces is None else list(spaces), players, config.agents, actor.__name__)
        lanes = {player: config.sessions * list(agents.values()).count(player) for player in players}
        loaded = load_players(run, run_config, names, lanes=lanes, seed=seed)
        models = make_models(loaded, config, deterministic=not arguments.sample)
        gateway = Gateway(
            models, Seats(models, agents, spaces), config, actor, config.settings, Access(token, config.allow_origins)
        )
        scheme = "http" if config.tls_cert is None else "https"
        served = ", ".join(model.stamp for model in models.values())
        how = "sampled actions" if arguments.sample else "most likely actions"
        line = f"serving {served} of {run} at {url_of(listening, scheme)} ({how}, {config.sessions} games)"
        return uvloop.run(_serve(gateway, listening, config, line))


def _log_requests() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("arena.access")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


async def _serve(gateway: Any, listening: Any, config: GatewayConfig, line: str) -> int:
    from arena.gateway.http import HttpServer

    server = HttpServer(gateway, listening, config)
    gateway.connections = lambda: server.connections
    loop, told_to_close = asyncio.get_running_loop(), asyncio.Event()

    def close() -> None:
        if told_to_close.is_set():
            os._exit(AFTER_A_SECOND_SIGNAL)
        told_to_close.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, close)
    serving = asyncio.create_task(server.serve())
    clock = asyncio.create_task(gateway.look_after())
    await server.started()
    print(line, flush=True)
    await told_to_close.wait()
    await gateway.drain()
    server.stop()
    await serving
    clock.cancel()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "arena serve", description="Answer over HTTP with what the players of a run have learned."
    )
    parser.add_argument("run", type=Path, help="a run directory, such as runs/quickstart")
    parser.add_argument(
        "--player",
        action="append",
        default=[],
        metavar="NAME[@STEPS]",
        help="whom to serve, with the newest weights or a snapshot's; may be repeated (default: every player)",
    )
    parser.add_argument("--sample", action="store_true", help="draw actions instead of taking the most likely ones")
    parser.add_argument("--seed", type=int, help="seed of drawn actions; the run's own if left out")
    for name, field in GatewayConfig.model_fields.items():
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, **_option(name, field))
    return parser


def _option(name: str, field: FieldInfo) -> dict[str, Any]:
    """Return the keywords of an option for a key of the configuration."""
    text = (field.description or "").rstrip(".").replace("%", "%%")
    if field.annotation is bool:
        return {"action": "store_true", "default": None, "help": text}
    if name == "allow_origins":
        return {"action": "append", "metavar": "ORIGIN", "help": f"{text}; may be repeated"}
    if name in _PAIRS:
        return {"action": "append", "default": [], "metavar": _PAIRS[name], "help": f"{text}; may be repeated"}
    return {"metavar": "VALUE", "help": f"{text} (default: {field.default})"}


def gateway_config(arguments: argparse.Namespace) -> GatewayConfig:
    """Return the limits that the command line says.

    Raises:
      ConfigError: a value is out of its bounds.
    """
    values: dict[str, Any] = {}
    for name, field in GatewayConfig.model_fields.items():
        said = getattr(arguments, name)
        if name in _PAIRS:
            values[name] = dict(_pair(name, item) for text in said for item in _items(name, text))
        elif said is not None:
            as_it_is = not isinstance(said, str) or field.annotation in (str, str | None)
            values[name] = said if as_it_is else yaml.safe_load(said)
    try:
        return GatewayConfig(**values)
    except ValidationError as error:
        place, text, _ = next(iter(problems(error, GatewayConfig)))
        raise ConfigError(f"--{str(place[0]).replace('_', '-')}: {text}") from error


def _items(name: str, text: str) -> list[str]:
    return text.split(",") if name == "agents" else [text]


def _pair(name: str, text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--{name}: expected {_PAIRS[name]}, found {text!r}")
    return key, value if name == "agents" else yaml.safe_load(value)
