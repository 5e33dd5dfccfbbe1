"""The file of a sweep: which run, with which seeds and values of keys."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from arena.common.errors import ConfigError
from arena.common.validation import (
    Count,
    CountOrAuto,
    Index,
    Model,
    Number,
    Problem,
    describe_value,
    problems,
    refusal,
)
from arena.config.files import existing
from arena.config.sections import file_name, not_empty
from arena.config.yaml_source import Source, read

NOT_SWEPT = {
    "seed": "list seeds in the sweep's key seeds",
    "name": "each run is named after its values",
    "run_root": "all runs lie in the sweep's directory",
}
"""Keys of a run that a sweep sets itself, and what to do instead of setting them."""


class Range(Model):
    """Values of a key from which a search chooses: one of these."""

    log: tuple[Number, Number] | None = Field(None, description="Least and greatest number, on a logarithmic scale.")
    uniform: tuple[Number, Number] | None = Field(None, description="Least and greatest number.")
    integer: tuple[int, int] | None = Field(None, description="Least and greatest whole number.")
    choice: tuple[Any, ...] | None = Field(None, description="The values.")

    @model_validator(mode="after")
    def _one(self) -> "Range":
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            found = ", ".join(given) or "none"
            raise refusal([Problem((), f"expected one of log, uniform, integer and choice, found {found}")])
        for low, high in filter(None, (self.log, self.uniform, self.integer)):
            if not low < high or (self.log is not None and low <= 0):
                positive = " above 0" if self.log is not None else ""
                text = f"expected two numbers{positive} in ascending order, found {low:g} and {high:g}"
                raise refusal([Problem((given[0],), text)])
        if self.choice == ():
            raise refusal([Problem(("choice",), "expected at least one value, found an empty list")])
        return self


class Objective(Model):
    """Objective of a search: the mean return of a player's last evaluation while training."""

    player: str | None = Field(None, description="The player; not needed if one player is evaluated.")
    of: Literal["evaluations"] = Field("evaluations", description="The scores: evaluations while training.")
    direction: Literal["maximize", "minimize"] = Field("maximize", description="Whether more or less is better.")


class Search(Model):
    """A search by Optuna: each trial is one run with values that earlier trials suggest."""

    trials: Annotated[Count, Field(gt=0)] = Field(description="Number of trials, those of earlier starts included.")
    space: Annotated[dict[str, Range], BeforeValidator(not_empty)] = Field(
        description="Keys of the run, as for --set, and the range of each: {log: [1e-5, 1e-2]}, {uniform: [0.9, 1]}, "
        "{integer: [1, 8]} or {choice: [a, b]}."
    )
    objective: Objective = Field(Objective(), description="What is improved.")
    sampler: Literal["tpe", "random", "gp"] = Field("tpe", description="How values are chosen.")
    pruner: Literal["median", "hyperband", "none"] = Field(
        "median",
        description="When a trial ends early. median: when an evaluation is worse than the median of earlier trials "
        "after as many steps.",
    )
    startup: Index = Field(5, description="With median: number of completed trials before any ends early.")


class SweepConfig(Model):
    """The whole file."""

    name: Annotated[str, BeforeValidator(file_name)] = Field(
        description="Name of the sweep; its directory, with a directory for each run, lies in the run_root of the runs."
    )
    run: str = Field(
        description="The configuration file of the runs, looked up in the current directory, then beside this file."
    )
    settings: dict[str, Any] = Field(
        {}, alias="set", description="Keys of the configuration with one value for all runs, as for --set."
    )
    seeds: Annotated[tuple[Index, ...], BeforeValidator(not_empty)] | None = Field(
        None,
        description="Seeds: a run for each seed and combination of the grid. null: that of the configuration.",
    )
    grid: dict[str, tuple[Any, ...]] = Field(
        {}, description="Keys of the configuration, as for --set, and the values of each: all combinations are run."
    )
    search: Search | None = Field(None, description="Instead of seeds and a grid: a search.")
    parallel: CountOrAuto = Field(
        "auto", description="Number of runs at a time. auto: as many as the machine has cores and memory for."
    )

    @field_validator("run")
    @classmethod
    def _there(cls, place: str, info: ValidationInfo) -> str:
        found = existing(place, info)
        return place if Path(place).resolve() == found else str(found)

    @field_validator("settings", "grid")
    @classmethod
    def _free(cls, keys: dict[str, Any]) -> dict[str, Any]:
        _check_keys(keys)
        for key, values in keys.items():
            if values == ():
                raise ValueError(f"{key}: expected at least one value, found an empty list")
        return keys

    @field_validator("search")
    @classmethod
    def _space_is_free(cls, search: Search | None) -> Search | None:
        _check_keys({} if search is None else search.space)
        return search

    @model_validator(mode="after")
    def _consistent(self) -> "SweepConfig":
        if self.search is None and self.seeds is None and not self.grid:
            raise refusal([Problem((), "expected seeds, grid or search, found none of them")])
        if self.search is not None and (self.seeds is not None or self.grid):
            text = (
                "expected no seeds and no grid beside it: each trial is one run with a seed of its own; run the best "
                "values with several seeds afterwards, in another sweep"
            )
            raise refusal([Problem(("search",), text)])
        swept = set(self.grid) | set({} if self.search is None else self.search.space)
        if twice := sorted(swept & set(self.settings)):
            raise refusal([Problem(("set",), f"expected keys that are not swept, found {', '.join(twice)}")])
        return self


def _check_keys(keys: Mapping[str, Any]) -> None:
    for key in keys:
        if key in NOT_SWEPT:
            raise ValueError(f"{key} cannot be set here: {NOT_SWEPT[key]}")


def load_sweep(path: Path) -> SweepConfig:
    """Read the file of a sweep; its name is that of the file unless stated.

    Raises:
      ConfigError: all problems of the file, one line each.
    """
    source = read(path)
    return check_sweep({"name": path.stem, **source.data}, path.resolve().parent, source)


def check_sweep(data: dict[str, Any], folder: Path, source: Source | None = None) -> SweepConfig:
    """Return a sweep from plain data.

    Args:
      data: content of the file.
      folder: where ``run`` is looked up after the current directory.
      source: origins of the keys, for messages.

    Raises:
      ConfigError: all problems, one line each.
    """
    try:
        return SweepConfig.model_validate(data, context={"folder": folder})
    except ValidationError as error:
        raise ConfigError("\n".join(_lines(problems(error, SweepConfig), source))) from None


def _lines(wrong: Sequence[Problem], source: Source | None) -> list[str]:
    lines = []
    for problem in wrong:
        key = ".".join(map(str, problem.place))
        origin = "" if source is None else f"{source.where(problem.place)}: "
        lines.append(f"{origin}{key}: {problem.text}" if key else f"{origin}{problem.text}")
    return list(dict.fromkeys(lines))


def check_value(value: Any, key: str) -> None:
    """Check that a value of a key can be written on a command line.

    Raises:
      ConfigError: it is no number, text, truth value, list or mapping.
    """
    if isinstance(value, Mapping):
        for item in value.values():
            check_value(item, key)
    elif isinstance(value, list | tuple):
        for item in value:
            check_value(item, key)
    elif not (value is None or isinstance(value, bool | int | float | str)):
        raise ConfigError(f"{key}: expected a number, a text, a list or a mapping, found {describe_value(value)}")
