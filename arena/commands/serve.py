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
    from arena.gateway.models import make_models

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
    gateway = Gateway(models, Seats(models, agents, spaces), config, actor, config.settings, access)
    return gateway, [model.stamp for model in models.values()]


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
    add_gateway_options(parser)
    return parser
