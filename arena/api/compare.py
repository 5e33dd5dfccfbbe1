"""Comparisons of runs in Python: ``arena.compare`` does what the command of the same name does."""

import os
from collections.abc import Mapping
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from arena.api.columns import Columns
from arena.api.run import Run
from arena.report.comparison import Comparison, Measure, compare_runs, comparison_json
from arena.report.comparison_plot import draw_comparison
from arena.report.run_groups import read_run, runs_at

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def compare(*runs: Run | str | os.PathLike[str], player: str | None = None, of: Measure | None = None) -> "Compared":
    """Compare runs, in groups that differ in their seeds only.

    Args:
      *runs: runs, run directories, or directories of several: that of a sweep.
      player: only this player; all that learn if None.
      of: ``"evaluations"`` while training or ``"returns"`` of training episodes; evaluations if None and every run has
        some.

    Raises:
      ConfigError: there is no such run or player, or nothing can be compared.
    """
    paths = [run.path if isinstance(run, Run) else Path(run) for run in runs]
    found = {run.path.resolve(): run for path in paths for run in runs_at(path)}
    title = ", ".join(path.resolve().name for path in paths)
    return Compared(title, compare_runs([read_run(run) for run in found.values()], player, of))


class Compared:
    """Results of a comparison."""

    def __init__(self, title: str, comparison: Comparison) -> None:
        """Hold the results."""
        self._title, self._comparison = title, comparison

    def __repr__(self) -> str:
        """Return the interquartile mean of the last scores of each group."""
        lines = [
            f"{result.group.label or 'all runs'}, {result.player}: {result.of_final.iqm:.6g} ({len(result.runs)} seeds)"
            for result in self._comparison.results
        ]
        return f"Compared({'; '.join(lines)})"

    @property
    def table(self) -> Columns:
        """A row for each group and player.

        Columns: ``group``, ``player``, ``seeds``, and for the last (``final``) and the best score of each run
        ``final_mean``, ``final_iqm``, ``final_low``, ``final_high``, ``best_mean`` and so on: the mean, the
        interquartile mean and its 95 % bootstrap interval, NaN for a single run.
        """
        results = self._comparison.results
        columns = {
            "group": np.array([result.group.label for result in results], object),
            "player": np.array([result.player for result in results], object),
            "seeds": np.array([len(result.runs) for result in results]),
        }
        for name in ("final", "best"):
            for part in ("mean", "iqm", "low", "high"):
                values = [getattr(getattr(result, f"of_{name}"), part) for result in results]
                columns[f"{name}_{part}"] = np.array(values, np.float64)  # None becomes NaN
        return Columns(columns)

    @property
    def data(self) -> Mapping[str, Any]:
        """Everything as JSON values, with the runs and the curves: what ``arena compare --json`` prints."""
        return comparison_json(self._comparison)

    def plot(self) -> "Figure":
        """Return the curves of the groups with their intervals, as a picture."""
        return draw_comparison(self._title, self._comparison)

    def _repr_html_(self) -> str:
        picture = StringIO()
        self.plot().savefig(picture, format="svg")
        text = picture.getvalue()
        notes = "".join(f"<p>{escape(note)}</p>" for note in self._comparison.notes)
        return f"{self.table._repr_html_()}{text[text.index('<svg') :]}{notes}"
