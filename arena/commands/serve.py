"""``arena serve``: serve the trained players of a run over HTTP."""

import argparse
import logging
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arena.commands.arguments import positive
from arena.commands.gateway_options import add_gateway_options, gateway_config, log_requests
from arena.common.errors import ConfigError
from arena.common.registry import packages_for
from arena.common.seeding import derive_seed
from arena.config.environment import OUTSIDE
from arena.config.gateway import GatewayConfig, GatewaySettings
from arena.config.resumed import load_stored_config
from arena.config.run import RunConfig
from arena.records.player_names import split_run
from arena.records.run_directory import RunDirectory

if TYPE_CHECKING:
    from arena.gateway.http.access import Access
    from arena.gateway.http.app import Gateway
    from arena.gateway.models import LoadedPlayer
    from arena.gateway.reload import VersionSource
    from arena.gateway.workers.peers import WorkerPlace


def main(argv: Sequence[str]) -> int:
    """Run ``arena serve``; return the exit code.

    Raises:
      ConfigError: there is no such run or player, an option is wrong, or the port cannot be opened.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when NumPy and torch load
    arguments = _parser().parse_args(argv)
    arguments.run, name = split_run(arguments.run)
    if name:
        arguments.player.append(name)
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    config = as_trained(gateway_config(arguments), arguments)
    logging.getLogger("arena.gateway").setLevel(logging.INFO)
    log_requests(config)
    _check(arguments)
    with packages_for("arena serve"):
        from arena.gateway.server import opened, serve
    from arena.export.metadata import ExportError
    from arena.gateway.workers.peers import WorkerPlace

    place = None if arguments.as_worker is None else WorkerPlace.of(arguments.as_worker)
    if place is None and arguments.workers > 1:
        from arena.gateway.workers.supervisor import serve_by_workers

        return serve_by_workers(argv, config, arguments.workers)
    try:
        with opened(config, place) as door:
            gateway, stamps = _gateway(arguments, config, door.access, place)
            how = "sampled actions" if arguments.sample else "most likely actions"
            line = f"serving {', '.join(stamps)} of {arguments.run} at {door.url} ({how}, {config.sessions} games)"
            return serve(gateway, door, config, line, place)
    except ExportError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1


def as_trained(config: GatewayConfig, arguments: argparse.Namespace) -> GatewayConfig:
    """Return the limits with actor and agents of a run with external games, unless others are set."""
    if _is_file(arguments) or not arguments.run.is_dir():
        return config
    run_config = load_stored_config(RunDirectory.existing(arguments.run).config)
    rows = [row for round_ in run_config.round_list() for row in round_.rows]
    outside = next((row for row in rows if row.env.use == OUTSIDE), None)
    if outside is None or arguments.actor is not None:
        return config
    trained: dict[str, Any] = {"actor": outside.env.settings["actor"]}
    if not arguments.settings:
        trained["settings"] = outside.env.settings["settings"]
    if not arguments.agents and not arguments.player:
        from arena.gateway.training.spaces import entities_of

        names = [entity.name for entity in entities_of(GatewaySettings(**outside.env.settings))]
        trained["agents"] = {
            names[entity]: seat.player for seat in outside.seats for entity in seat.entities if entity < len(names)
        }
    return config.model_copy(update=trained)


def _check(arguments: argparse.Namespace) -> None:
    """Check that the options fit together."""
    if _is_file(arguments):
        for option in ("player", "backend", "quantize"):
            if getattr(arguments, option):
                raise ConfigError(
                    f"--{option}: expected a run directory, found the exported file {arguments.run}, "
                    "which fixes this option"
                )
    if arguments.quantize and arguments.backend != "onnx":
        raise ConfigError("--quantize: expected --backend onnx beside it")
    if arguments.sample and (_is_file(arguments) or arguments.backend == "onnx"):
        raise ConfigError("--sample: expected a run directory; an exported file contains the most likely actions only")


def _is_file(arguments: argparse.Namespace) -> bool:
    return arguments.run.suffix == ".onnx"


def _gateway(
    arguments: argparse.Namespace, config: GatewayConfig, access: "Access", place: "WorkerPlace | None"
) -> "tuple[Gateway, list[str]]":
    """Return the gateway, and the served players (``player@version``)."""
    from arena.evaluation.players import seed_libraries
    from arena.evaluation.served_trainers import trainers_among
    from arena.gateway.actors.seats import Seats, assign, load_actor, spaces_of
    from arena.gateway.http.app import Gateway
    from arena.gateway.players import ModelMaker, make_players
    from arena.gateway.reload import Reloader
    from arena.gateway.workers.peers import Peers

    run = None if _is_file(arguments) else RunDirectory.existing(arguments.run)
    run_config = None if run is None else load_stored_config(run.config)
    seed = arguments.seed if arguments.seed is not None else 1 if run_config is None else run_config.seed
    if place is not None:
        seed = derive_seed(seed, "worker", place.number)
    seed_libraries(seed)
    actor = load_actor(config.actor)
    spaces = spaces_of(actor, config.settings)
    loaded: list[LoadedPlayer]
    sources: Mapping[str, VersionSource] = {}
    if run is None or run_config is None:
        from arena.evaluation.served_files import load_file

        agents_at_most = 1 if spaces is None else len(spaces)
        loaded = [load_file(arguments.run, config.sessions * agents_at_most)]
        names = [loaded[0].name]
        agents = assign(None if spaces is None else list(spaces), names, config.agents, actor.__name__)
    else:
        from arena.evaluation.served import all_names

        names = arguments.player or list(dict.fromkeys(config.agents.values())) or all_names(run, run_config)
        agents = assign(None if spaces is None else list(spaces), names, config.agents, actor.__name__)
        if trainers_among(run_config, names):
            return _gateway_of_trainers(arguments, config, access, run, run_config, agents)
        lanes = {name: config.sessions * list(agents.values()).count(name) for name in names}
        loaded, sources = _load(arguments, run, run_config, names, lanes, seed)
    make = ModelMaker(config, deterministic=not arguments.sample)
    players = make_players(loaded, make)
    peers = None if place is None else Peers(place)
    gateway = Gateway(players, Seats(players, agents, spaces), config, actor, config.settings, access, peers)
    if sources and not arguments.no_reload:
        gateway.background.append(Reloader(players, sources, make, config, gateway.metrics).run)
    return gateway, [model.stamp for player in players.values() for model in player]


def _gateway_of_trainers(
    arguments: argparse.Namespace,
    config: GatewayConfig,
    access: "Access",
    run: RunDirectory,
    run_config: RunConfig,
    agents: Mapping[str, str],
) -> "tuple[Gateway, list[str]]":
    """Return the gateway for players that are trainers of the user's own."""
    from arena.evaluation.served_trainers import TrainedModels, trainers_among
    from arena.gateway.actors.seats import load_actor
    from arena.gateway.http.app import Gateway
    from arena.gateway.remote_seats import RemoteSeats, reloading

    names = list(dict.fromkeys(agents.values()))
    others = [name for name in names if name not in trainers_among(run_config, names)]
    if others or arguments.workers > 1 or arguments.backend == "onnx":
        found = f"player {others[0]!r}" if others else "--workers or --backend onnx"
        raise ConfigError(f"expected trainers of your own alone, natively and in one process, found {found}")
    models = TrainedModels(run, run_config)
    loaded = {name: models.load(name) for name in names}
    seats = RemoteSeats(agents, loaded)
    gateway = Gateway({}, seats, config, load_actor(config.actor), config.settings, access)
    gateway.versions = lambda: {each.name: each.version for each in loaded.values()}
    if not arguments.no_reload:
        moving = {name: each for name, each in loaded.items() if "@" not in name}
        gateway.background.append(reloading(moving, models.newer, config.poll))
    return gateway, [f"{each.name}@{each.version}" for each in loaded.values()]


def _load(
    arguments: argparse.Namespace,
    run: RunDirectory,
    run_config: RunConfig,
    names: Sequence[str],
    lanes: Mapping[str, int],
    seed: int,
) -> "tuple[list[LoadedPlayer], Mapping[str, VersionSource]]":
    """Return players of a run, and the sources of newer versions."""
    from arena.evaluation.served import load_players

    loaded, sources = load_players(run, run_config, names, lanes=lanes, seed=seed)
    if arguments.backend != "onnx":
        return loaded, sources
    from arena.evaluation.served_files import OnnxPlayers, OnnxVersions

    by_player = Counter[str]()  # as many states as all its versions together need
    for name, count in lanes.items():
        by_player[name.partition("@")[0]] += count
    players = OnnxPlayers(run, run_config, by_player, int8=arguments.quantize == "int8")
    onnx_sources = {name: OnnxVersions(source, players) for name, source in sources.items()}
    return [players.convert(player) for player in loaded], onnx_sources


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "arena serve", description="Serve the trained players of a run over HTTP: observations in, actions out."
    )
    parser.add_argument(
        "run",
        metavar="RUN[:PLAYER[@STEPS]]|FILE.onnx",
        help="a run directory, also with a player (runs/x:blue@best), or a file that arena export wrote",
    )
    parser.add_argument(
        "--player",
        action="append",
        default=[],
        metavar="NAME[.ENTITY][@STEPS]",
        help="a player to serve, with its newest weights or those of a snapshot, or the actor of one entity of a team; "
        "may be repeated (default: every player)",
    )
    parser.add_argument("--sample", action="store_true", help="draw actions instead of taking the most likely ones")
    parser.add_argument(
        "--no-reload", action="store_true", help="keep the first weights, also when the run writes newer ones"
    )
    parser.add_argument("--seed", type=int, help="seed of drawn actions (default: the seed of the run)")
    parser.add_argument(
        "--backend",
        choices=("native", "onnx"),
        help="library that computes the actions: the arena's own code, or onnxruntime",
    )
    parser.add_argument(
        "--quantize", choices=("int8",), help="with --backend onnx: store the weights as 8-bit integers"
    )
    parser.add_argument(
        "--workers",
        type=positive,
        default=1,
        metavar="N",
        help="number of server processes behind the port, each with --sessions games",
    )
    parser.add_argument("--as-worker", help=argparse.SUPPRESS)  # how the workers are started
    add_gateway_options(parser)
    return parser
