"""Table of a comparison on the terminal: a line for each group and player."""

from rich.box import SIMPLE_HEAD
from rich.table import Table

from arena.common.text import number
from arena.report.comparison import Comparison, Interval


def comparison_table(comparison: Comparison) -> Table:
    """Return the final and the best scores of each group: mean, interquartile mean and 95 % interval."""
    what = "evaluation" if comparison.measure == "evaluations" else "return"
    several = len(comparison.players) > 1
    table = Table(box=SIMPLE_HEAD)
    table.add_column("runs that differ in")
    if several:
        table.add_column("player")
    for name in ("seeds", f"last {what}", "IQM", "95 % interval", f"best {what}", "IQM", "95 % interval"):
        table.add_column(name, justify="right")
    for result in comparison.results:
        cells = [result.group.label or "their seeds only", *([result.player] if several else []), str(len(result.runs))]
        table.add_row(*cells, *_cells(result.of_final), *_cells(result.of_best))
    return table


def _cells(scores: Interval) -> tuple[str, str, str]:
    between = "" if scores.low is None or scores.high is None else f"{number(scores.low)} to {number(scores.high)}"
    return number(scores.mean), f"[bold]{number(scores.iqm)}[/bold]", between
