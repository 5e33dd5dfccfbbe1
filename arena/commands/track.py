"""``arena track``: the curves of runs for an experiment tracker."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from arena.report.run_groups import runs_at
from arena.trackers.clients import CLIENTS
from arena.trackers.follow import track


def main(argv: Sequence[str]) -> int:
    """Run ``arena track``; return the exit code.

    Raises:
      ConfigError: there is no such run, the library is not installed, or another process sends the run already.
    """
    arguments = _parser().parse_args(argv)
    if arguments.child:
        os.nice(10)
    for path in arguments.runs:
        for run in runs_at(path):
            sent = track(run, arguments.to, follow=arguments.follow)
            print(f"{run}: {sent:,} points sent to {arguments.to}", flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "arena track",
        description="Send the curves of runs to an experiment tracker, by its own library: metrics of learning, "
        "returns and evaluations, with the configuration. What was sent before is not sent again; a resumed run is the "
        "same run there. The key records.trackers of the configuration starts this beside a run.",
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="a run directory, or a directory of several: that of a sweep"
    )
    parser.add_argument("--to", choices=tuple(CLIENTS), required=True, help="the tracker")
    parser.add_argument("--follow", action="store_true", help="continue until the run has ended")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser
