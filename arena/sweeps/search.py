"""Search for good values of keys by Optuna: trials are runs, and evaluations while training end bad ones early."""

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from arena.api.run import Run
from arena.common.errors import ConfigError
from arena.common.registry import packages_for
from arena.common.seeding import derive_seed
from arena.common.text import duration, number, suggestion
from arena.config.run import RunConfig
from arena.records.lease import holder_of
from arena.sweeps.children import Ended, run_all
from arena.sweeps.configuration import Range, Search
from arena.sweeps.planned import PlannedRun, Sweep, check_run
from arena.sweeps.results import SweepResult
from arena.system.processes import identity, is_alive

if TYPE_CHECKING:
    import optuna

JOURNAL = "study.journal"
"""File of the study: a journal that several machines may append to, on a network file system too."""

OWNER, HOST = "owner", "host"
"""Attributes of a trial: the process that runs it, and its machine."""

BEGINS_WITHIN = 300.0
"""Seconds after which a trial of another machine without a running run counts as abandoned."""

BEST = 5
"""Number of best trials that are listed at the end."""


def check_search(sweep: Sweep) -> RunConfig:
    """Check a search before it starts; return the configuration of a trial.

    Raises:
      ConfigError: the runs have no evaluations, the player is not evaluated, a key or a bound is wrong, or Optuna is
        missing.
    """
    search = _search_of(sweep)
    _player_of(sweep)
    # The bounds of all keys are valid, so that, most likely, what lies between them is.
    for end in (0, -1):
        run = sweep.planned("trial", {key: _ends(range_)[end] for key, range_ in search.space.items()})
        check_run(run)
    with packages_for("search"):
        import optuna  # noqa: F401 (checked here, before anything starts)
    return run.config()


def _search_of(sweep: Sweep) -> Search:
    assert sweep.config.search is not None
    return sweep.config.search


def _player_of(sweep: Sweep) -> str:
    """Return the player that a search improves.

    Raises:
      ConfigError: the runs have no evaluations, or not of this player.
    """
    player, evaluated = _search_of(sweep).objective.player, sweep.base.evaluated_players()
    if not evaluated:
        raise ConfigError(
            f"search: expected runs with evaluations of a learning player, found none in {sweep.config.run}; add "
            "evaluate: {every: 20_000} to it, or set: {evaluate.every: 20_000} here"
        )
    if player is None and len(evaluated) > 1:
        raise ConfigError(f"search.objective.player: expected one of {', '.join(evaluated)}, found none")
    if player is not None and player not in evaluated:
        raise ConfigError(
            f"search.objective.player: expected a player that is evaluated ({', '.join(evaluated)}), found {player!r}"
            f"{suggestion(player, evaluated)}"
        )
    return player or evaluated[0]


def _ends(range_: Range) -> tuple[Any, ...]:
    """Return the ends of a range, or the values of a choice."""
    return next(ends for ends in (range_.log, range_.uniform, range_.integer, range_.choice) if ends is not None)


def run_search(sweep: Sweep, parallel: int, log: Callable[[str], None]) -> SweepResult:
    """Run the trials of a search that are missing.

    Args:
      sweep: the sweep.
      parallel: number of trials at a time.
      log: receives a line about each event.

    Raises:
      ConfigError: the study cannot be read, or was begun with another space.
      KeyboardInterrupt: it was interrupted; its trials have ended in order, and continue with the next start.
    """
    trials = Trials(sweep, log)
    log(f"{sweep.path}: {trials.describe()}, {parallel} at a time")
    run_all(trials, parallel, log)
    for line in trials.best():
        log(line)
    return SweepResult(sweep.path, trials.completed, trials.failed)


class Trials:
    """The trials of a search, as a supply of runs.

    Attributes:
      failed: runs that have failed, with their last lines.
    """

    def __init__(self, sweep: Sweep, log: Callable[[str], None]) -> None:
        """Open the study, or create it.

        Raises:
          ConfigError: it cannot be read, or was begun with another space.
        """
        self._sweep, self._log, self._search, self._player = sweep, log, _search_of(sweep), _player_of(sweep)
        assert sweep.base.evaluate is not None
        self._every = sweep.base.evaluate.every
        self._study = _open_study(sweep)
        self._running: dict[str, optuna.trial.Trial] = {}
        self._reported: dict[str, int] = {}
        self._pruned: set[str] = set()
        self._abandoned = self._find_abandoned()
        self.failed: dict[str, str] = {}

    @property
    def completed(self) -> int:
        """Number of trials that have spent their budget."""
        return self._count("COMPLETE")

    def describe(self) -> str:
        """Return the number of trials, and how many of them have ended."""
        ended = sum(trial.state.is_finished() for trial in self._study.get_trials(deepcopy=False))
        return f"{self._search.trials} trials, {ended} ended, {len(self._abandoned)} to be continued"

    def _count(self, state: str) -> int:
        return sum(trial.state.name == state for trial in self._study.get_trials(deepcopy=False))

    def _find_abandoned(self) -> list[int]:
        """Return the ids of trials that have lost their process."""
        found = []
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state.is_finished():
                continue
            path = self._sweep.path / _name(trial.number)
            here = trial.user_attrs.get(HOST) == socket.gethostname()
            began = time.time() - (trial.datetime_start.timestamp() if trial.datetime_start else 0.0)
            lost = not is_alive(trial.user_attrs[OWNER]) if here else began > BEGINS_WITHIN
            if lost and (holder_of(path) if path.is_dir() else None) is None:
                found.append(trial._trial_id)
        return found

    # A supply of runs -------------------------------------------------------------------------------------------

    def next_run(self) -> PlannedRun | None:
        """Return the run of an abandoned trial, else of a new one; None if there are enough."""
        import optuna

        if self._abandoned:
            trial = optuna.trial.Trial(self._study, self._abandoned.pop(0))
        elif len(self._study.get_trials(deepcopy=False)) < self._search.trials:
            trial = self._study.ask()
        else:
            return None
        trial.set_user_attr(HOST, socket.gethostname())
        trial.set_user_attr(OWNER, identity())
        keys = {key: _suggest(trial, key, range_) for key, range_ in self._search.space.items()}
        name = _name(trial.number)
        self._running[name] = trial
        self._log(f"{name}: {_describe(keys)}")
        # Each trial has a seed of its own: the best values shall not be those of one lucky seed.
        return self._sweep.planned(name, {**keys, "seed": self._sweep.base.seed + trial.number})

    def postpone(self, run: PlannedRun, holder: str) -> None:
        """Leave a trial to the process that runs it."""
        self._log(f"{run.name}: run by {holder}")
        del self._running[run.name]

    def continues(self, run: PlannedRun) -> bool:
        """Report new evaluations; return whether the pruner lets the trial continue."""
        trial = self._running[run.name]
        for step, mean in self._evaluations(run):
            if step <= self._reported.get(run.name, -1):  # Optuna takes one value for each step
                continue
            self._reported[run.name] = step
            trial.report(mean, step)
            if trial.should_prune():
                self._pruned.add(run.name)
                return False
        return True

    def _evaluations(self, run: PlannedRun) -> list[tuple[int, float]]:
        """Return (steps, mean return) of the evaluations of a run so far.

        Steps are rounded to multiples of ``evaluate.every``: the pruner compares trials at equal steps.
        """
        try:
            found = Run(run.directory.path).evaluations()
        except ConfigError:  # not begun
            return []
        own = found["player"] == self._player
        steps = (found["steps"][own] / self._every).round() * self._every
        return [(int(step), float(mean)) for step, mean in zip(steps, found["mean"][own], strict=True)]

    def ended(self, run: PlannedRun, end: Ended) -> None:
        """Record in the study how a trial has ended."""
        from optuna.trial import TrialState

        trial = self._running.pop(run.name)
        scores = self._evaluations(run)
        if end.finished and scores:
            self._study.tell(trial, scores[-1][1])
            self._log(f"{run.name}: {number(scores[-1][1])} in {duration(end.seconds)}{self._if_best(trial.number)}")
        elif run.name in self._pruned and end.code == 0:
            self._study.tell(trial, state=TrialState.PRUNED)
            step, mean = scores[-1]
            self._log(f"{run.name}: pruned after {step:,} steps with {number(mean)}")
        else:
            self._study.tell(trial, state=TrialState.FAIL)
            text = end.last_line if end.code else "it has ended without an evaluation"
            self.failed[run.name] = text
            self._log(f"{run.name}: failed with exit code {end.code}: {text}")

    @property
    def waits(self) -> bool:
        """Whether runs may come later: never, since a new trial can always start now."""
        return False

    # Results ----------------------------------------------------------------------------------------------------

    def _if_best(self, trial: int) -> str:
        return ", the best so far" if self._study.best_trial.number == trial else ""

    def best(self) -> list[str]:
        """Return lines about the best trials, and the command that runs the best values."""
        ended = [trial for trial in self._study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
        ended.sort(key=_value, reverse=self._search.objective.direction == "maximize")
        lines = [f"{self._count('COMPLETE')} complete, {self._count('PRUNED')} pruned, {self._count('FAIL')} failed"]
        for trial in ended[:BEST]:
            values = {key: _decoded(value) for key, value in trial.params.items()}
            lines.append(f"  {number(_value(trial))}  {_name(trial.number)}  {_describe(values)}")
        if ended:
            values = {key: _decoded(value) for key, value in ended[0].params.items()}
            words = " ".join(f"--set '{key}={json.dumps(value)}'" for key, value in values.items())
            lines.append(f"the best values: arena {self._sweep.config.run} {words}")
        return lines


def _open_study(sweep: Sweep) -> "optuna.Study":
    """Open the study of a sweep, or create it.

    Raises:
      ConfigError: it was begun with another space.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend

    search = _search_of(sweep)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(sweep.path / JOURNAL)))
        study = optuna.create_study(
            storage=storage, study_name=sweep.config.name, load_if_exists=True, direction=search.objective.direction
        )
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{sweep.path / JOURNAL}: expected the study of a search, found: {error}") from error
    space = json.loads(search.model_dump_json())["space"]
    begun = study.user_attrs.setdefault("space", space)
    if begun != space:
        raise ConfigError(
            f"{sweep.path}: expected the space with which the search was begun ({json.dumps(begun)}), found another "
            "one; choose another name for the sweep"
        )
    study.set_user_attr("space", space)
    seed = derive_seed(sweep.base.seed, len(study.trials), os.environ.get("SLURM_ARRAY_TASK_ID", ""))
    study.sampler, study.pruner = _sampler(search, seed), _pruner(search, sweep.base)
    return study


def _sampler(search: Search, seed: int) -> "optuna.samplers.BaseSampler":
    from optuna import samplers

    if search.sampler == "tpe":
        return samplers.TPESampler(seed=seed, constant_liar=True)  # so that trials side by side differ
    return samplers.GPSampler(seed=seed) if search.sampler == "gp" else samplers.RandomSampler(seed=seed)


def _pruner(search: Search, config: RunConfig) -> "optuna.pruners.BasePruner":
    from optuna import pruners

    assert config.evaluate is not None
    if search.pruner == "median":
        return pruners.MedianPruner(n_startup_trials=search.startup)
    if search.pruner == "hyperband":
        return pruners.HyperbandPruner(min_resource=config.evaluate.every, max_resource=config.steps)
    return pruners.NopPruner()


def _suggest(trial: "optuna.trial.Trial", key: str, range_: Range) -> Any:
    if range_.log is not None:
        return trial.suggest_float(key, *range_.log, log=True)
    if range_.uniform is not None:
        return trial.suggest_float(key, *range_.uniform)
    if range_.integer is not None:
        return trial.suggest_int(key, *range_.integer)
    assert range_.choice is not None
    return _decoded(trial.suggest_categorical(key, [_encoded(value) for value in range_.choice]))


_JSON = "json:"


def _encoded(value: Any) -> Any:
    """Return a value that Optuna can choose: lists and mappings as text."""
    return value if value is None or isinstance(value, bool | int | float | str) else _JSON + json.dumps(value)


def _decoded(value: Any) -> Any:
    return json.loads(value.removeprefix(_JSON)) if isinstance(value, str) and value.startswith(_JSON) else value


def _value(trial: "optuna.trial.FrozenTrial") -> float:
    """Return the score of a complete trial."""
    assert trial.value is not None
    return trial.value


def _name(trial: int) -> str:
    return f"trial-{trial:04d}"


def _describe(keys: Mapping[str, Any]) -> str:
    shown = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in keys.items()}
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in shown.items())
