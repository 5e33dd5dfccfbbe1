"""``arena plots``: draw the pictures of a run again, from its records."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from arena.records.run_directory import RunDirectory
from arena.report.plots import draw_plots


def main(argv: Sequence[str]) -> int:
    """Run ``arena plots``; return the exit code.

    Raises:
      ConfigError: there is no such run, or its records are damaged.
    """
    parser = argparse.ArgumentParser("arena plots", description="Draw the plots of a run again, from its records.")
    parser.add_argument("run", type=Path, help="a run directory, such as runs/quickstart")
    for picture in draw_plots(RunDirectory.existing(parser.parse_args(argv).run)):
        print(picture)
    return 0
