"""A run's configuration as the page draws it: every key with its value, and whether that is the default.

Nothing that a configuration names is imported: the run may come from elsewhere.
"""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 1_000_000
"""Size of a file that is read key by key: a larger one takes seconds to parse, and is shown as text only."""

MAX_KEYS = 20_000
"""Keys that are sent: few bytes of YAML can stand for billions of them."""

MAX_DEPTH = 100
"""Levels of nested lists and mappings."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(path: Path) -> Any:
    """Return the content of a YAML file.

    Raises:
      OSError: it cannot be read.
      ValueError: it is too large, or no YAML.
    """
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"expected at most {MAX_BYTES:,} bytes, found {path.stat().st_size:,}")
    text = path.read_text("utf-8", "replace")
    depth = 0
    try:
        for event in yaml.parse(text, _Loader):  # the loader recurses in C, where too deep a file would end the process
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise ValueError(f"expected at most {MAX_DEPTH} levels, found more")
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"expected YAML: {error}") from error


def read_configuration(path: Path) -> dict[str, Any]:
    """Return a configuration as JSON values.

    Returns:
      ``keys``: [key, value as text, whether it is the default] in the order of the file; ``text``: the file, or its
      beginning; ``problem``: a sentence if there are no keys, or not all of them.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(MAX_BYTES)
    except OSError as error:
        return {"keys": [], "text": "", "problem": f"{path.name} cannot be read: {error.strerror}"}
    keys: list[tuple[str, str, bool]] = []
    problem = None
    try:
        for key in _keys(load_yaml(path), _schema(), ()):
            if len(keys) == MAX_KEYS:
                problem = f"{path.name} has more than {MAX_KEYS:,} keys; the first of them are shown"
                break
            keys.append(key)
    except ValueError as error:
        problem = f"{path.name} is shown as text only: {error}"
    return {"keys": keys, "text": text, "problem": problem}


@functools.cache
def _schema() -> dict[str, Any]:
    from arena.config.schema import json_schema  # a second of imports

    return json_schema()


def _keys(value: Any, schema: dict[str, Any], place: tuple[str, ...]) -> Iterator[tuple[str, str, bool]]:
    """Yield the leaves below a value, which ``schema`` describes."""
    items: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        items = [(str(name), item) for name, item in value.items()]
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        items = [(str(number), item) for number, item in enumerate(value)]
    if not items:
        text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
        yield ".".join(place), text, "default" in schema and schema["default"] == value
    for name, item in items:
        yield from _keys(item, _below(schema, name, value), (*place, name))


def _below(schema: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return the schema of an item of a value; an empty one if there is none."""
    if isinstance(value, list):
        return _resolved(schema.get("items", {}))
    found = schema.get("properties", {}).get(name)
    for case in schema.get("allOf", ()):
        if case["if"]["properties"]["use"]["const"] == value.get("use"):
            found = case["then"]["properties"].get(name, found)
    if found is None:
        found = schema.get("additionalProperties")
    return _resolved(found if isinstance(found, dict) else {})


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without a reference at its top; of alternatives, the one with keys."""
    default = {"default": schema["default"]} if "default" in schema else {}
    options = [_resolved(option) for option in schema.get("anyOf", ())]
    if options:
        schema = next((option for option in options if "properties" in option or "items" in option), schema)
    if "$ref" in schema:
        schema = _schema()["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema | default
