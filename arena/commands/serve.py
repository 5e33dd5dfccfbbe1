"""``arena serve``: answers over HTTP with what the players of a run have learned."""

import argparse
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arena.commands.gateway_options import add_gateway_options, gateway_config, log_requests, server_packages
from arena.config.gateway import GatewayConfig
from arena.config.run import RunConfig, load_config
from arena.records.run_directory import RunDirectory

if TYPE_CHECKING:
    from arena.gateway.access import Access
    from arena.gateway.app import Gateway


def main(argv: Sequence[str]) -> int:
    """Run ``arena serve``; return the exit code.

    Raises:
      ConfigError: there is no such run or player, an option is wrong, or the port cannot be opened.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when NumPy and torch load
    arguments = _parser().parse_args(argv)
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    config = gateway_config(arguments)
    logging.getLogger("arena.gateway").setLevel(logging.INFO)
    log_requests(config)
    run = RunDirectory.existing(arguments.run)
    with server_packages("arena serve"):
        from arena.gateway.server import opened, serve
    with opened(config) as door:
        gateway, stamps = _gateway(arguments, run, load_config(run.config), config, door.access)
        how = "sampled actions" if arguments.sample else "most likely actions"
        line = f"serving {', '.join(stamps)} of {run} at {door.url} ({how}, {config.sessions} games)"
        return serve(gateway, door, config, line)


def _gateway(
    arguments: argparse.Namespace, run: RunDirectory, run_config: RunConfig, config: GatewayConfig, access: "Access"
) -> "tuple[Gateway, list[str]]":
    """Return what answers, and whom it serves (``player@version``)."""
    from arena.evaluation.players import seed_libraries
    from arena.evaluation.served import load_players
    from arena.gateway.actors.seats import Seats, assign, load_actor, spaces_of
    from arena.gateway.app import Gateway
    from arena.gateway.players import ModelMaker, make_players
    from arena.gateway.reload import Reloader

    seed = run_config.seed if arguments.seed is None else arguments.seed
    seed_libraries(seed)
    actor = load_actor(config.actor)
    spaces = spaces_of(actor, config.settings)
    names = arguments.player or list(dict.fromkeys(config.agents.values())) or list(run_config.players)
    agents = assign(None if spaces is None else list(spaces), names, config.agents, actor.__name__)
    lanes = {name: config.sessions * list(agents.values()).count(name) for name in names}
    loaded, sources = load_players(run, run_config, names, lanes=lanes, seed=seed)
    make = ModelMaker(config, deterministic=not arguments.sample)
    players = make_players(loaded, make)
    gateway = Gateway(players, Seats(players, agents, spaces), config, actor, config.settings, access)
    if not arguments.no_reload:
        gateway.background.append(Reloader(players, sources, make, config, gateway.metrics).run)
    return gateway, [model.stamp for player in players.values() for model in player]


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
    parser.add_argument("--no-reload", action="store_true", help="serve no newer weights when there are some")
    parser.add_argument("--seed", type=int, help="seed of drawn actions; the run's own if left out")
    add_gateway_options(parser)
    return parser
