"""The configuration file as a whole: a validated, frozen model."""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator

from arena.common.errors import ConfigError
from arena.common.validation import Place, Problem, problems, refusal
from arena.config import checks
from arena.config.run_keys import RunKeys
from arena.config.yaml_source import Source, read


class RunConfig(RunKeys):
    """The whole file."""

    @model_validator(mode="after")
    def _consistent(self) -> "RunConfig":
        for problems_of in (checks.structure_problems, checks.run_problems):
            if wrong := problems_of(self):
                raise refusal(wrong)
        return self


def load_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a configuration file.

    Args:
      path: the file.
      overrides: ``key.key=value`` items that replace values of the file; values are YAML, list items go by index.

    Raises:
      ConfigError: all problems of the file, one line each: place, what was expected and what was found.
    """
    source = read(Path(path), overrides, named=["policies"])
    context = {"folder": Path(path).resolve().parent}
    try:
        return RunConfig.model_validate(source.data, context=context)
    except ValidationError as error:
        wrong = problems(error, RunConfig)
    wrong += _hidden(source.data, wrong, context)
    wrong.sort(key=lambda problem: source.order(problem.place))
    raise ConfigError("\n".join(dict.fromkeys(_line(source, problem) for problem in wrong)))


def _line(source: Source, problem: Problem) -> str:
    """Return a problem as ``file.yaml:12: a.b.c: what is wrong``."""
    origin, key = source.where(problem.place), ".".join(map(str, problem.place))
    return f"{origin}: {problem.text}" if not key or origin == f"--set {key}" else f"{origin}: {key}: {problem.text}"


def _hidden(data: dict[str, Any], wrong: Sequence[Problem], context: dict[str, Any]) -> list[Problem]:
    """Return problems that are hidden by the problems ``wrong``, so that one start reports all of them.

    Wrong values are replaced by their defaults and the file is checked again. Where that would cause new problems (a
    list item or a whole section would be missing), only the first ones are reported.
    """
    data = deepcopy(data)
    places = {problem.place for problem in wrong}
    for place in places:
        section = _at(data, place[:-1])
        if len(place) < 2 or place[:-1] == ("policies",) or not isinstance(section, dict):
            return []
        section.pop(place[-1], None)
    try:
        RunConfig.model_validate(data, context=context)
    except ValidationError as error:
        return [
            problem
            for problem in problems(error, RunConfig)
            if _at(data, problem.place) is not None  # otherwise it was removed just now
            and not any(place[: len(problem.place)] == problem.place for place in places)
        ]
    return []


def _at(data: Any, place: Place) -> Any:
    """Return the value at a place, None if there is none."""
    for part in place:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data
