"""Comparison of groups of runs: interquartile means over seeds, with bootstrap intervals.

R. Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice (NeurIPS 2021). SciPy computes
the numbers of their library, rliable 1.2, which does not work beside pandas 3.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.stats import bootstrap, trim_mean  # type: ignore[import-untyped]

from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.report.run_groups import ComparedRun, Curve, Group, group_runs

RESAMPLES = 50_000
"""Bootstrap samples of an interval of the table, as by rliable's default."""

RESAMPLES_OF_CURVE = 2000
"""Bootstrap samples of a curve's band."""

BATCH = 1000
"""Bootstrap samples that are computed at once; it bounds the memory."""

SEED = 0
"""Seed of the bootstrap, so that two calls agree."""

NAMED = 3
"""Number of runs that a note names."""

POINTS = 100
"""Largest number of points of a curve."""

Measure = Literal["evaluations", "returns"]


class Interval(NamedTuple):
    """Statistics of one score of each run of a group.

    Attributes:
      mean: mean.
      iqm: interquartile mean; that of all scores for fewer than 4.
      low, high: 95 % bootstrap interval of ``iqm``; None for a single run.
    """

    mean: float
    iqm: float
    low: float | None
    high: float | None


class Band(NamedTuple):
    """Interquartile mean over the runs of a group along the steps, and its interval; all arrays are ``[N]``."""

    steps: np.ndarray
    iqm: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Result(NamedTuple):
    """Results of a player in the runs of a group.

    Attributes:
      group: the group.
      player: name of the player.
      runs: runs with scores of the player.
      final, best: the last and the highest score of each run, ``[runs]``. The highest is biased upwards.
      of_final, of_best: statistics of these.
      band: the curve, over the steps that all runs have reached.
    """

    group: Group
    player: str
    runs: tuple[ComparedRun, ...]
    final: np.ndarray
    best: np.ndarray
    of_final: Interval
    of_best: Interval
    band: Band


class Comparison(NamedTuple):
    """Results of all groups and players.

    Attributes:
      measure: what the scores are: ``evaluations`` while training, or ``returns`` of training episodes.
      results: group by group.
      notes: sentences on what is missing in it.
    """

    measure: Measure
    results: tuple[Result, ...]
    notes: tuple[str, ...]

    @property
    def players(self) -> list[str]:
        """Names of the players."""
        return list(dict.fromkeys(result.player for result in self.results))


def compare_runs(runs: Sequence[ComparedRun], player: str | None = None, measure: Measure | None = None) -> Comparison:
    """Compare runs, in groups that differ in their seeds only.

    Args:
      runs: the runs.
      player: only this player; all that learn if None.
      measure: what the scores are; evaluations if None and every run has some.

    Raises:
      ConfigError: there is no such player, or no run has scores.
    """
    chosen: Measure = measure or ("evaluations" if all(run.evaluations for run in runs) else "returns")
    names = list(dict.fromkeys(name for run in runs for name in (run.learning or run.returns)))
    if player is not None and player not in names:
        raise ConfigError(f"--player: no run has a player {player!r}{suggestion(player, names)}; {_listed(names)}")
    results: list[Result] = []
    for group in group_runs(runs):
        for name in [player] if player is not None else names:
            curves = [(run, curve) for run in group.runs if (curve := getattr(run, chosen).get(name)) is not None]
            if curves:
                results.append(_result(group, name, *zip(*curves, strict=True)))
    if not results:
        raise ConfigError(f"expected runs with {chosen} of a player, found none; {_remedy(chosen)}")
    return Comparison(chosen, tuple(results), tuple(_notes(runs, results, chosen)))


def _listed(names: Sequence[str]) -> str:
    return f"expected one of {', '.join(names)}" if names else "the runs have recorded nothing yet"


def _remedy(measure: Measure) -> str:
    if measure == "evaluations":
        return "set evaluate in the configuration, or compare the returns of training (--of returns)"
    return "no episode has ended yet"


def _notes(runs: Sequence[ComparedRun], results: Sequence[Result], measure: Measure) -> list[str]:
    open_runs = [str(run.run) for run in runs if not run.finished]
    without = [str(run.run) for run in runs if not any(run in result.runs for result in results)]
    notes = [f"not finished: {_named(open_runs)}"] if open_runs else []
    notes += [f"without {measure}, and so not in the table: {_named(without)}"] if without else []
    if any(len(result.runs) < 4 for result in results):
        notes.append("with fewer than 4 runs the interquartile mean is the mean, and intervals are too narrow")
    return notes


def _named(names: Sequence[str]) -> str:
    """Return the first names of a list, and the number of the others."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _result(group: Group, player: str, runs: tuple[ComparedRun, ...], curves: tuple[Curve, ...]) -> Result:
    final = np.array([curve.scores[-1] for curve in curves])
    best = np.array([curve.scores.max() for curve in curves])
    return Result(group, player, runs, final, best, interval(final), interval(best), band(curves))


def interval(scores: np.ndarray) -> Interval:
    """Return the statistics of the scores of some runs, ``[runs]``."""
    low, high = _bootstrap(scores, RESAMPLES) if len(scores) > 1 else (None, None)
    return Interval(
        float(scores.mean()),
        float(interquartile_mean(scores)),
        None if low is None else float(low),
        None if high is None else float(high),
    )


def interquartile_mean(scores: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the mean of the scores without the lowest and the highest quarter along an axis."""
    return trim_mean(scores, 0.25, axis=axis)


def band(curves: Sequence[Curve]) -> Band:
    """Return the interquartile mean of curves, at most up to the end of the shortest one.

    Between its points a curve is interpolated, where runs were not evaluated at the same steps.
    """
    steps = _common_steps(curves)
    scores = np.array([np.interp(steps, curve.steps, curve.scores) for curve in curves])  # [runs, N]
    low, high = _bootstrap(scores, RESAMPLES_OF_CURVE) if len(curves) > 1 else (scores[0], scores[0])
    return Band(steps, interquartile_mean(scores), low, high)


def _common_steps(curves: Sequence[Curve]) -> np.ndarray:
    """Return the steps at which curves are compared: all of theirs that each of them reaches, if those are not many."""
    start, end = max(curve.steps[0] for curve in curves), min(curve.steps[-1] for curve in curves)
    if end <= start:
        return np.array([end])
    steps = np.unique(np.concatenate([[start, end], *(curve.steps for curve in curves)]))
    steps = steps[(steps >= start) & (steps <= end)]
    return steps if len(steps) <= POINTS else np.linspace(start, end, POINTS)


def _bootstrap(scores: np.ndarray, resamples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the 95 % interval of the interquartile mean over the runs, of scores ``[runs, ...]``."""
    found = bootstrap(
        (scores,), interquartile_mean, axis=0, n_resamples=resamples, batch=BATCH, method="percentile",
        random_state=np.random.RandomState(SEED),
    )  # fmt: skip
    return found.confidence_interval.low, found.confidence_interval.high


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON values."""
    return {
        "measure": comparison.measure,
        "notes": list(comparison.notes),
        "results": [
            {
                "label": result.group.label,
                "differs": result.group.differs,
                "player": result.player,
                "final": result.of_final._asdict(),
                "best": result.of_best._asdict(),
                "runs": [
                    {"path": str(run.run), "seed": run.seed, "finished": run.finished, "final": last, "best": best}
                    for run, last, best in zip(result.runs, result.final.tolist(), result.best.tolist(), strict=True)
                ],
                "curve": {name: values.tolist() for name, values in result.band._asdict().items()},
            }
            for result in comparison.results
        ],
    }
