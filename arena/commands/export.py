"""``arena export``: write a trained player to a file for other runtimes, if the file equals the player."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arena.commands.arguments import positive
from arena.common.errors import ConfigError
from arena.config.resumed import load_stored_config
from arena.records.player_names import named_player
from arena.records.run_directory import RunDirectory

if TYPE_CHECKING:
    from arena.export.gate import Tolerance


def main(argv: Sequence[str]) -> int:
    """Run ``arena export``; return the exit code: 1 for a rejected file.

    Raises:
      ConfigError: there is no such run or player, it cannot be exported, or there are no observations to compare on.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when NumPy and torch load
    arguments = _parser().parse_args(argv)
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    from arena.evaluation.exported import Exported, export
    from arena.export.formats import NEWEST_OPSET, OLDEST_OPSET
    from arena.export.metadata import ExportError, check_file

    if not OLDEST_OPSET <= arguments.opset <= NEWEST_OPSET:
        raise ConfigError(f"--opset: expected {OLDEST_OPSET} to {NEWEST_OPSET}, found {arguments.opset}")
    if arguments.episodes and arguments.to == "safetensors":
        raise ConfigError(
            "--episodes: expected --to onnx or torchscript, found --to safetensors, which contains weights only"
        )
    if arguments.quantize and arguments.to != "onnx":
        raise ConfigError(f"--quantize: expected --to onnx, found --to {arguments.to}")
    path, player = named_player(arguments.run, arguments.player)
    run = RunDirectory.existing(path)
    if player is None:
        raise ConfigError(f"expected a player: arena export {run}:PLAYER, or arena export {run} PLAYER")
    try:
        written: Exported = export(
            run,
            load_stored_config(run.config),
            player,
            arguments.to,
            out=arguments.out,
            opset=arguments.opset,
            int8=arguments.quantize == "int8",
            record=arguments.record,
            episodes=arguments.episodes,
            tolerance=tolerance_of(arguments, int8=arguments.quantize == "int8"),
        )
    except ExportError as error:
        print(f"refused: {error}; nothing was written", file=sys.stderr)
        return 1
    except OSError as error:
        raise ConfigError(f"the file cannot be written: {error}") from error
    about = written.about
    print(f"{written.path}: {about.player}@{about.steps} ({about.policy}), {written.size:,} bytes")
    if written.agreement is not None:
        print(f"  {written.agreement}")
        print(f"  {check_file(written.path).name} beside it is what arena check-export compares with")
    if written.loss is not None:
        print(f"  {written.loss}")
    return 0


def add_tolerance(parser: argparse.ArgumentParser) -> None:
    """Add the options of the largest allowed difference of a file from its policy."""
    parser.add_argument(
        "--absolute", type=float, metavar="X", help="largest allowed error of an output (1e-4; int8: any)"
    )
    parser.add_argument(
        "--relative",
        type=float,
        metavar="X",
        help="largest allowed error as a fraction of the output (1e-3; int8: any)",
    )
    parser.add_argument(
        "--agreement", type=float, metavar="SHARE", help="smallest allowed fraction of equal actions (1.0; int8: 0.98)"
    )


def tolerance_of(arguments: argparse.Namespace, *, int8: bool) -> "Tolerance":
    """Return the largest allowed difference of a file."""
    from arena.export.gate import Tolerance

    usual = Tolerance.usual(int8=int8)
    bounds = {name: getattr(arguments, name) for name in usual._fields if getattr(arguments, name) is not None}
    for name, value in bounds.items():
        if not 0 <= value < float("inf") or (name == "agreement" and value > 1):
            expected = "0 to 1" if name == "agreement" else "0 or more"
            raise ConfigError(f"--{name}: expected {expected}, found {value:g}")
    if int8 and ("absolute" in bounds) != ("relative" in bounds):
        bounds = {"absolute": 0.0, "relative": 0.0, **bounds}  # one of them must hold: the other one allows nothing
    return usual._replace(**bounds)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "arena export",
        description="Write a trained player to a file for other programs, and compare the file with the "
        "player on observations of its matches. If their outputs differ, no file is written.",
    )
    parser.add_argument("run", help="a run directory, such as runs/quickstart, or a player of it: runs/x:blue@best")
    parser.add_argument(
        "player",
        nargs="?",
        metavar="PLAYER[.ENTITY][@STEPS]",
        help="the player, with its newest weights or those of a snapshot, or the actor of one entity of a team",
    )
    parser.add_argument(
        "--to", choices=("onnx", "torchscript", "safetensors"), default="onnx", help="format of the file (%(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="path of the file (default: RUN/players/PLAYER/STEPS[.int8].onnx)"
    )
    parser.add_argument("--opset", type=int, default=20, help="version of ONNX's operators (%(default)s)")
    parser.add_argument("--quantize", choices=("int8",), help="store the weights as 8-bit integers")
    parser.add_argument(
        "--record",
        type=positive,
        default=0,
        metavar="N",
        help="collect N observations in the run's environment instead of using those that training has stored",
    )
    parser.add_argument(
        "--episodes",
        type=positive,
        default=0,
        metavar="N",
        help="play N episodes with the file and with the player, and print the loss of return",
    )
    add_tolerance(parser)
    return parser
