"""Runs in groups that differ in nothing but their seeds, and the keys of the configuration in which groups differ."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arena.config.yaml_source import read
from arena.records.checkpoints import Checkpoints
from arena.records.readers.run import open_records, read_evaluations, read_players, read_returns
from arena.records.run_directory import RunDirectory

WITHIN_GROUP = ("name", "run_root", "seed", "records")
"""Keys in which runs of one group may differ: they leave what is learned unchanged, but for chance."""

ABSENT = "-"
"""Value of a key that a configuration does not have."""

LONGEST = 60
"""Characters of a value in a label."""

BINS = 20
"""Number of points of a curve of episode returns."""


class Curve(NamedTuple):
    """Scores of a player along its transition steps; both arrays are ``[N]``, steps increase."""

    steps: np.ndarray
    scores: np.ndarray


class ComparedRun(NamedTuple):
    """A run in a comparison.

    Attributes:
      run: its directory.
      seed: its seed.
      keys: configuration without the keys of ``WITHIN_GROUP``: dotted key -> value as text.
      learning: names of its learning players.
      evaluations: player -> mean returns of its evaluations while training.
      returns: player -> mean returns of its episodes, in at most ``BINS`` parts of equal length in steps.
      finished: whether it has spent its budget, as far as its newest checkpoint states.
    """

    run: RunDirectory
    seed: int
    keys: dict[str, str]
    learning: tuple[str, ...]
    evaluations: dict[str, Curve]
    returns: dict[str, Curve]
    finished: bool


class Group(NamedTuple):
    """Runs that differ in their seeds.

    Attributes:
      label: keys in which the groups differ, with the values of this one; empty if there is one group.
      differs: the same as a mapping.
      runs: the runs, by seed.
    """

    label: str
    differs: dict[str, str]
    runs: tuple[ComparedRun, ...]


def read_run(run: RunDirectory) -> ComparedRun:
    """Read a run, which may still be running.

    Raises:
      ConfigError: its configuration or its records cannot be read.
    """
    data = read(run.config).data
    with open_records(run.database) as connection:
        learning = tuple(name for name, info in read_players(connection).items() if info.learns)
        evaluations = {
            player: Curve(series.steps, series.mean) for player, series in read_evaluations(connection).items()
        }
        returns = {player: _binned(series.steps, series.values) for player, series in read_returns(connection).items()}
    return ComparedRun(
        run,
        int(data.get("seed", 1)),
        dict(leaves({key: value for key, value in data.items() if key not in WITHIN_GROUP})),
        learning,
        evaluations,
        returns,
        bool((Checkpoints(run.checkpoints).newest_manifest() or {}).get("finished")),
    )


def _binned(steps: np.ndarray, values: np.ndarray) -> Curve:
    """Return the means of values in parts of equal length in steps, each at the mean of its steps."""
    part = np.minimum((steps / max(float(steps[-1]), 1.0) * BINS).astype(int), BINS - 1)
    counts = np.bincount(part, minlength=BINS)
    filled = counts > 0
    means = (np.bincount(part, weights, BINS)[filled] / counts[filled] for weights in (steps, values))
    return Curve(*means)


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted keys of nested mappings and lists, with their values as texts."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, Mapping):
        items = list(value.items())
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in value):
        items = list(enumerate(value))
    if not items and place:
        yield place, _text(value)
    for key, item in items:
        yield from leaves(item, f"{place}.{key}" if place else str(key))


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def group_runs(runs: Sequence[ComparedRun]) -> list[Group]:
    """Return the groups in the order of their first runs."""
    members: dict[tuple[tuple[str, str], ...], list[ComparedRun]] = {}
    for run in runs:
        members.setdefault(tuple(sorted(run.keys.items())), []).append(run)
    keys_of = [dict(key) for key in members]
    shown = _telling_keys(keys_of)
    names = short_names(shown)
    groups = []
    for keys, group in zip(keys_of, members.values(), strict=True):
        differs = {key: keys.get(key, ABSENT) for key in shown}
        label = ", ".join(f"{names[key]} {_shortened(value)}" for key, value in differs.items())
        groups.append(Group(label, differs, tuple(sorted(group, key=lambda run: run.seed))))
    return groups


def _telling_keys(keys_of: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the keys in which configurations differ, without those that follow from another one.

    Another algorithm has other settings: if ``use`` differs, the settings beside it are left out, unless they differ
    between two configurations with the same ``use``.
    """
    differing = [
        key
        for key in dict.fromkeys(key for keys in keys_of for key in keys)
        if len({keys.get(key) for keys in keys_of}) > 1
    ]
    return [key for key in differing if not _follows(key, differing, keys_of)]


def _follows(key: str, differing: Sequence[str], keys_of: Sequence[Mapping[str, str]]) -> bool:
    """Return whether a setting differs only where the ``use`` beside its section does."""
    section, found, _ = key.rpartition(".settings.")
    use = f"{section}.use"
    if not found or use not in differing:
        return False
    by_use: dict[str | None, set[str | None]] = {}
    for keys in keys_of:
        by_use.setdefault(keys.get(use), set()).add(keys.get(key))
    return all(len(values) == 1 for values in by_use.values())


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return the shortest end of each dotted key that no other one of them has."""
    names = {}
    for key in keys:
        parts = key.split(".")
        ends = (".".join(parts[start:]) for start in range(len(parts) - 1, -1, -1))
        others = [f".{other}" for other in keys if other != key]
        names[key] = next((end for end in ends if not any(other.endswith(f".{end}") for other in others)), key)
    return names


def _shortened(value: str) -> str:
    return value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…"


def runs_below(path: Path) -> list[RunDirectory]:
    """Return the run at a path, or the runs one or two levels below it, in the order of their names."""
    if (path / "config.yaml").is_file():
        return [RunDirectory.existing(path)]
    configs = sorted([*path.glob("*/config.yaml"), *path.glob("*/*/config.yaml")]) if path.is_dir() else []
    return [RunDirectory.existing(config.parent) for config in configs if config.is_file()]


def runs_at(path: Path) -> list[RunDirectory]:
    """Return the runs of ``runs_below``, at least one.

    Raises:
      ConfigError: there is none; the message names the runs beside it.
    """
    return runs_below(path) or [RunDirectory.existing(path)]
