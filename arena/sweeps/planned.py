"""The runs of a sweep: the name, the directory and the keys of each, known before anything starts."""

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from arena.api.run import Run
from arena.common.errors import ConfigError
from arena.config.run import RunConfig, load_config
from arena.config.yaml_source import read
from arena.records.run_directory import RunDirectory
from arena.report.run_groups import leaves, short_names
from arena.sweeps.configuration import SweepConfig, check_value

LONGEST = 120
"""Characters of a name; a longer one is cut, with a checksum behind it."""

MAY_DIFFER = ("name", "run_root", "records", "waits", "checkpoint")
"""Keys in which an earlier attempt of a run may differ: they leave what is learned unchanged."""


class PlannedRun(NamedTuple):
    """A run of a sweep.

    Attributes:
      name: name of its directory.
      file: the configuration file.
      overrides: ``key=value`` for each key that differs from the file.
      directory: the run directory.
    """

    name: str
    file: Path
    overrides: tuple[str, ...]
    directory: RunDirectory

    @property
    def arguments(self) -> list[str]:
        """Arguments of the command line that starts it."""
        return [str(self.file), *(word for override in self.overrides for word in ("--set", override))]

    @property
    def is_finished(self) -> bool:
        """Whether it has spent its budget."""
        return self.directory.config.is_file() and Run(self.directory.path).finished

    @property
    def state(self) -> str:
        """State in a word or two: missing, finished, or to be continued."""
        if not self.directory.config.is_file():
            return "missing"
        return "finished" if self.is_finished else "to be continued"

    def config(self) -> RunConfig:
        """Return its configuration.

        Raises:
          ConfigError: the file, a key or a value is wrong.
        """
        return load_config(self.file, self.overrides)


class Sweep(NamedTuple):
    """A sweep and the place of its runs.

    Attributes:
      config: content of the file.
      overrides: ``key=value`` for all runs.
      base: configuration of the runs, without what is swept.
      path: directory of the runs.
    """

    config: SweepConfig
    overrides: tuple[str, ...]
    base: RunConfig
    path: Path

    def planned(self, name: str, keys: Mapping[str, Any]) -> PlannedRun:
        """Return the run with this name and these values of keys."""
        own = (*self.overrides, *_overrides(keys), f"name={json.dumps(name)}", f"run_root={json.dumps(str(self.path))}")
        return PlannedRun(name, Path(self.config.run), own, RunDirectory(self.path, name))


def open_sweep(config: SweepConfig, overrides: Iterable[str] = ()) -> Sweep:
    """Return a sweep with the place of its runs.

    Args:
      config: content of the file.
      overrides: further ``key=value`` for all runs.

    Raises:
      ConfigError: the configuration of the runs is wrong, or the place is that of a run.
    """
    for key, value in config.settings.items():
        check_value(value, f"set.{key}")
    shared = (*_overrides(config.settings), *overrides)
    base = load_config(Path(config.run), shared)
    if config.search is not None and base.evaluate is not None and "ranks" not in base.evaluate.model_fields_set:
        # The process that a root starts gets what the ranks leave of the cores: on busy ones, nothing until they end.
        shared = (*shared, "evaluate.ranks=1")
        base = load_config(Path(config.run), shared)
    path = Path(base.run_root) / config.name
    if (path / "config.yaml").is_file():
        raise ConfigError(f"{path}: expected a directory of runs, found a run; choose another name for the sweep")
    return Sweep(config, shared, base, path)


def _overrides(keys: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{key}={json.dumps(value)}" for key, value in keys.items())


def grid_runs(sweep: Sweep) -> list[PlannedRun]:
    """Return a run for each seed and each combination of the grid, those with one seed side by side.

    Raises:
      ConfigError: a key or a value is wrong, two runs have the same name, or an earlier attempt had other settings.
    """
    grid, seeds = sweep.config.grid, sweep.config.seeds
    keys = [*grid, *(["seed"] if seeds is not None else [])]
    short = short_names(keys)
    runs: dict[str, PlannedRun] = {}
    values_of: dict[str, tuple[Any, ...]] = {}
    for key, options in grid.items():
        for option in options:
            check_value(option, f"grid.{key}")
    for *values, seed in itertools.product(*grid.values(), seeds if seeds is not None else [None]):
        combination = (*values, *([seed] if seeds is not None else []))
        name = name_of({short[key]: value for key, value in zip(keys, combination, strict=True)})
        if name in runs:
            first, second = (
                ", ".join(f"{short[key]} {value!r}" for key, value in zip(keys, values, strict=True))
                for values in (values_of[name], combination)
            )
            raise ConfigError(
                f"two runs would have the same name {name}, both with {first}; expected each value once"
                if first == second
                else f"two runs would have the same name {name}: with {first}, and with {second}; expected values that "
                "differ in letters, digits, '.' or '-'"
            )
        runs[name] = sweep.planned(name, dict(zip(keys, combination, strict=True)))
        values_of[name] = combination
    for run in runs.values():
        check_run(run)
    return list(runs.values())


def name_of(values: Mapping[str, Any]) -> str:
    """Return the name of a run with these values: ``learning_rate-0.001_seed-1``."""
    name = "_".join(f"{key}-{_slug(value)}" for key, value in values.items())
    name = name if re.match(r"[A-Za-z0-9_]", name) else f"run{name}"
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _slug(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text.rstrip("]}").lstrip("[{"))


def check_run(run: PlannedRun) -> None:
    """Check the configuration of a run, and that an earlier attempt had the same.

    Raises:
      ConfigError: it is wrong, or it had not.
    """
    try:
        config = run.config()
    except ConfigError as error:
        # Users have written these keys into the sweep's file.
        raise ConfigError(str(error).replace("--set ", "the sweep's key ")) from None
    if not run.directory.config.is_file():
        return
    stored, stated = (
        dict(leaves({key: value for key, value in data.items() if key not in MAY_DIFFER}))
        for data in (read(run.directory.config).data, config.model_dump(by_alias=True, mode="json"))
    )
    # A warm start is stored as the copy that the run has made of it.
    differing = [
        key
        for key in dict.fromkeys((*stored, *stated))
        if stored.get(key) != stated.get(key) and not key.endswith(("warm_start", "encoder_weights"))
    ]
    if differing:
        shown = ", ".join(f"{key} {stored.get(key, '-')}, now {stated.get(key, '-')}" for key in differing[:3])
        more = f" and {len(differing) - 3} more" * (len(differing) > 3)
        raise ConfigError(
            f"{run.directory}: expected the settings of the sweep, found a run with others ({shown}{more}); remove it "
            f"(rm -r {run.directory}), or choose another name for the sweep"
        )
