"""``arena check-export``: check whether an exported file is whole and still equals its player."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from arena.commands.export import add_tolerance, tolerance_of
from arena.records.run_directory import RunDirectory


def main(argv: Sequence[str]) -> int:
    """Run ``arena check-export``; return the exit code: 1 for a rejected file.

    Raises:
      ConfigError: there is no such file, check file or run.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when NumPy and torch load
    arguments = _parser().parse_args(argv)
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    from arena.evaluation.exported import check_export
    from arena.export.metadata import ExportError

    run = None if arguments.run is None else RunDirectory.existing(arguments.run)
    try:
        about, agreement = check_export(arguments.file, run, lambda int8: tolerance_of(arguments, int8=int8))
    except ExportError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1
    compared = "what its player said when it was written" if run is None else f"its player in {run}"
    print(f"{arguments.file}: {about.player}@{about.steps} ({about.policy}), compared with {compared}")
    print(f"  {agreement}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "arena check-export",
        description="Check that an exported file is complete and that its outputs equal those of its player.",
    )
    parser.add_argument("file", type=Path, help="a file that arena export wrote; its check file is beside it")
    parser.add_argument(
        "run",
        type=Path,
        nargs="?",
        help="the run that the file comes from; the file is then compared with the player itself",
    )
    add_tolerance(parser)
    return parser
