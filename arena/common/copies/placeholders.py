"""Placeholders in settings of an environment, such as ``{index}`` and ``{port}``, which differ from copy to copy."""

import ast
import copy
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from arena.common.copies.folders import new_folder
from arena.common.copies.ports import reserve_port
from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed
from arena.common.text import suggestion

EVALUATION, OUTSIDE_RUN = 10_000, 20_000
"""First index of the copies of a run's evaluations, and of those that no run steps: of ``arena eval``, films, the check
of an environment before a run. They play beside a run's own copies, and must not collide with them."""


class CopyPlace(NamedTuple):
    """Position of a copy of an environment in its run.

    Attributes:
      index: its number over all copies of the run.
      copy: its number in its match.
      match: index of the match.
      rank: MPI rank that steps it.
      seed: root of the run's random streams.
    """

    index: int = OUTSIDE_RUN  # type: ignore[assignment]  # shadows tuple.index
    copy: int = 0
    match: int = 0
    rank: int = 0
    seed: int = 0

    def after(self, copies: int) -> "CopyPlace":
        """Return the place of the copy that comes this many later in the same match."""
        return self._replace(index=self.index + copies, copy=self.copy + copies)


NAMES = (*CopyPlace._fields, "port", "tmp")
BRACES = re.compile(r"\{(\{)?([\w\s+*()-]+)\}(?(1)\})")
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def fill(settings: Any, place: CopyPlace, values: dict[str, Any] | None = None) -> Any:
    """Return a copy of nested settings with the placeholders in their texts replaced.

    A text that is nothing but a placeholder becomes its value, mostly a number. ``{{name}}`` is the text ``{name}``;
    braces around anything but names, whole numbers, ``+``, ``-`` and ``*`` stay as they are.

    Args:
      settings: settings, as in the configuration.
      place: the copy's position.
      values: port and folder of the copy, filled in by the first text with one; for settings that share them.

    Raises:
      ConfigError: a placeholder has an unknown name, or its value is no number where one is needed.
    """
    values = {} if values is None else values
    if isinstance(settings, str):
        return _filled(settings, place, values)
    if isinstance(settings, Mapping):
        return {key: fill(value, place, values) for key, value in settings.items()}
    if isinstance(settings, list | tuple):
        return type(settings)([fill(value, place, values) for value in settings])
    return copy.deepcopy(settings)


def check(settings: Any) -> None:
    """Check the placeholders in nested settings.

    Raises:
      ConfigError: one has an unknown name.
    """
    for text in _texts(settings):
        for found in BRACES.finditer(text):
            _expression(found)


def unquoted(settings: Any) -> str:
    """Return the name in a mapping such as ``{port: null}``, which is what YAML reads for ``{port}`` without quotes.

    Return an empty string if there is none.
    """
    if not isinstance(settings, Mapping | list | tuple):
        return ""
    if isinstance(settings, Mapping) and len(settings) == 1:
        ((name, value),) = settings.items()
        if value is None and isinstance(name, str) and (name in NAMES or suggestion(name, NAMES)):
            return name
    inside = settings.values() if isinstance(settings, Mapping) else settings
    return next((name for name in map(unquoted, inside) if name), "")


def _texts(settings: Any) -> Iterator[str]:
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, Mapping | list | tuple):
        for value in settings.values() if isinstance(settings, Mapping) else settings:
            yield from _texts(value)


def _filled(text: str, place: CopyPlace, values: dict[str, Any]) -> Any:
    whole = BRACES.fullmatch(text)
    if whole is not None and (expression := _expression(whole)) is not None:
        return _value(expression, place, values)

    def replaced(found: re.Match[str]) -> str:
        expression = _expression(found)
        if expression is None:
            return found[0][1:-1] if found[1] and _names(found[2]) else found[0]
        return str(_value(expression, place, values))

    return BRACES.sub(replaced, text)


def _expression(found: re.Match[str]) -> ast.expr | None:
    """Return the expression between braces; None if the braces are part of the text.

    Raises:
      ConfigError: a name is unknown.
    """
    names = [] if found[1] else _names(found[2])
    for name in names:
        if name not in NAMES:
            raise ConfigError(
                f"unknown placeholder {name!r} in {found[0]!r}{suggestion(name, NAMES)}; expected names of "
                f"{', '.join(NAMES)}, whole numbers, +, - and * (for braces in a text write {{{found[0]}}})"
            )
    return ast.parse(found[2].strip(), mode="eval").body if names else None


def _names(text: str) -> list[str]:
    """Return the names in an expression of names, whole numbers and operators; an empty list for any other text."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return []
    allowed = (ast.Expression, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Name, ast.Load)
    nodes = list(ast.walk(tree))
    if not all(isinstance(node, allowed) or type(getattr(node, "value", None)) is int for node in nodes):
        return []
    return [node.id for node in nodes if isinstance(node, ast.Name)]


def _value(node: ast.expr, place: CopyPlace, values: dict[str, Any]) -> Any:
    if isinstance(node, ast.BinOp):
        operands = _value(node.left, place, values), _value(node.right, place, values)
        if not all(isinstance(operand, int) for operand in operands):
            raise ConfigError(f"expected numbers in the placeholder {{{ast.unparse(node)}}}, found the folder {{tmp}}")
        return OPERATORS[type(node.op)](*operands)
    if isinstance(node, ast.Constant):
        return node.value
    assert isinstance(node, ast.Name)
    if node.id == "seed":
        return derive_seed(place.seed, "placeholder", place.index)
    if node.id in ("port", "tmp"):
        if node.id not in values:
            values[node.id] = reserve_port(place.index) if node.id == "port" else str(new_folder(place.index))
        return values[node.id]
    return getattr(place, node.id)
