"""``arena compare``: runs side by side, in groups that differ in their seeds only."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from arena.report.comparison import compare_runs, comparison_json
from arena.report.run_groups import read_run, runs_at

PICTURE = "compare.png"
"""Name of the picture."""


def main(argv: Sequence[str]) -> int:
    """Run ``arena compare``; return the exit code.

    Raises:
      ConfigError: there is no such run or player, nothing can be compared, or the picture cannot be written.
    """
    arguments = _parser().parse_args(argv)
    runs = list({run.path.resolve(): run for path in arguments.runs for run in runs_at(path)}.values())
    comparison = compare_runs([read_run(run) for run in runs], arguments.player, arguments.of)
    from arena.report.comparison_plot import draw_comparison
    from arena.report.comparison_table import comparison_table
    from arena.report.plots import save_figure
    from arena.report.terminal import find_terminal, make_console

    title = ", ".join(path.resolve().name for path in arguments.runs[:3]) + ", …" * (len(arguments.runs) > 3)
    place = arguments.runs[0] if len(arguments.runs) == 1 else Path()
    picture = save_figure(draw_comparison(title, comparison), arguments.output or place / PICTURE)
    if arguments.json:
        print(json.dumps({**comparison_json(comparison), "picture": str(picture)}, indent=1))
        return 0
    console = make_console(sys.stdout, find_terminal(sys.stdout))
    console.print(comparison_table(comparison))
    for note in comparison.notes:
        print(f"note: {note}")
    print(f"drawn to {picture}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "arena compare",
        description="Compare runs. Runs that differ in their seeds only form a group; groups are named by the keys of "
        "the configuration in which they differ. The table has the last and the best score of each group, as mean "
        "and as interquartile mean (IQM) with its 95 % bootstrap interval.",
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="a run directory, or a directory of several: that of a sweep"
    )
    parser.add_argument("--player", metavar="NAME", help="only this player (default: all that learn)")
    parser.add_argument(
        "--of",
        choices=("evaluations", "returns"),
        help="scores: evaluations while training, or returns of training episodes (default: evaluations, where all "
        "runs have some)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with the curves")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help=f"the picture, .png or .svg (default: {PICTURE}, in the directory if one is given)",
    )
    return parser
