"""A whole sweep: its checks, and the execution of its missing runs."""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from arena.api.launcher import check_call
from arena.common.errors import ConfigError
from arena.common.files import write_text
from arena.common.text import count_of
from arena.config.run import RunConfig
from arena.config.yaml_source import write
from arena.launch.mpirun import find_mpirun
from arena.launch.preflight.inspection import inspect_run
from arena.plan.memory import MemoryNeeds
from arena.sweeps.capacity import runs_at_a_time
from arena.sweeps.children import run_all
from arena.sweeps.configuration import SweepConfig, check_sweep, load_sweep
from arena.sweeps.grid import Grid
from arena.sweeps.planned import PlannedRun, Sweep, grid_runs, open_sweep
from arena.sweeps.results import SweepResult
from arena.system.control_groups import memory_for_job
from arena.system.cores import cores_of_job

FILE = "sweep.yaml"
"""Name of the copy of the sweep's file in its directory."""


class Prepared(NamedTuple):
    """A sweep that can start.

    Attributes:
      sweep: the sweep.
      runs: its runs; empty for a search, in which they depend on earlier results.
      first: configuration of a run.
      needs: memory of each of its rounds.
      parallel: number of runs at a time; None: as many as the machine carries.
    """

    sweep: Sweep
    runs: list[PlannedRun]
    first: RunConfig
    needs: list[MemoryNeeds]
    parallel: int | None

    def runs_at_a_time(self) -> int:
        """Return the number of runs at a time on this machine."""
        return self.parallel or runs_at_a_time(self.first, self.needs, cores_of_job(), memory_for_job())


def prepare(config: SweepConfig, overrides: Iterable[str] = (), parallel: int | None = None) -> Prepared:
    """Check a sweep as far as possible before anything starts.

    Args:
      config: content of the file.
      overrides: further ``key=value`` for all runs.
      parallel: number of runs at a time; that of the file if None.

    Raises:
      ConfigError: a key or a value is wrong, two runs have the same name, or a run cannot start.
    """
    sweep = open_sweep(config, overrides)
    find_mpirun()
    if config.search is None:
        runs = grid_runs(sweep)
        first = runs[0].config()
    else:
        from arena.sweeps.search import check_search

        runs, first = [], check_search(sweep)
    needs = inspect_run(first)
    stated = None if config.parallel == "auto" else config.parallel
    return Prepared(sweep, runs, first, needs, stated if parallel is None else parallel)


def start(prepared: Prepared, log: Callable[[str], None] = print) -> SweepResult:
    """Run what is missing of a sweep.

    Args:
      prepared: the sweep.
      log: receives a line about each event.

    Raises:
      ConfigError: its directory cannot be written.
      KeyboardInterrupt: it was interrupted; its runs have ended in order.
    """
    sweep, runs, parallel = prepared.sweep, prepared.runs, prepared.runs_at_a_time()
    try:
        sweep.path.mkdir(parents=True, exist_ok=True)
        write_text(sweep.path / FILE, write(sweep.config.model_dump(by_alias=True, mode="json")))
    except OSError as error:
        raise ConfigError(f"{sweep.path}: expected a directory that can be written: {error.strerror}") from error
    if sweep.config.search is not None:
        from arena.sweeps.search import run_search

        return run_search(sweep, parallel, log)
    grid = Grid(runs, log)
    missing = len(runs) - grid.finished
    page = f"; look at them: arena page {sweep.path}" if missing else ""
    log(f"{sweep.path}: {count_of(len(runs), 'run')}, {missing} to run, {parallel} at a time{page}")
    run_all(grid, parallel, log)
    return SweepResult(sweep.path, grid.finished, grid.failed)


def sweep(
    config: str | os.PathLike[str] | Mapping[str, Any],
    /,
    *,
    parallel: int | None = None,
    log: Callable[[str], None] = print,
    **keys: Any,
) -> SweepResult:
    """Run a sweep: seeds, a grid of values, or a search; started again, it continues with what is missing.

    Ctrl-C, or the interrupt of a notebook, stops the running runs in order.

    Args:
      config: path of the file of a sweep, or a mapping with the same keys; ``run`` may be a mapping, too.
      parallel: number of runs at a time; that of the file if None.
      log: receives a line about each event.
      **keys: keys of the runs with one value for all, as by ``--set``.

    Raises:
      ConfigError: a key or a value is wrong, two runs would have the same name, or a run cannot start.
      KeyboardInterrupt: it was interrupted, and all runs have ended.
    """
    check_call("arena.sweep")
    with tempfile.TemporaryDirectory(prefix="arena-") as folder:
        if isinstance(config, Mapping):
            data = {"name": "sweep", **config}
            if isinstance(data.get("run"), Mapping | RunConfig):
                run = data["run"]
                file = Path(folder) / "config.yaml"
                file.write_text(run.to_yaml() if isinstance(run, RunConfig) else write(dict(run)), encoding="utf-8")
                data["run"] = str(file)
            loaded = check_sweep(data, Path.cwd())
        else:
            loaded = load_sweep(Path(config))
        loaded = loaded.model_copy(update={"settings": {**loaded.settings, **keys}})
        return start(prepare(loaded, parallel=parallel), log)
