"""Descriptions of the configuration file: a JSON Schema for editors, tables of keys for people."""

import json
import re
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from arena.common import registry
from arena.config.checks import TABLES
from arena.config.environment import OUTSIDE, EnvOverride
from arena.config.gateway import GatewaySettings
from arena.config.league import MANAGED
from arena.config.run import RunConfig
from arena.config.yaml_source import IGNORED
from arena.league.catalog import PLAYERS, player_type
from arena.league.settings import BattlePlayerConfig, LeagueConfig, PlayerConfig, SoloPayoffConfig


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration file."""
    schema = RunConfig.model_json_schema(by_alias=True)
    schema |= {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The arena's configuration file",
        "oneOf": [{"required": [key]} for key in TABLES],
        "patternProperties": {f"^{IGNORED}": {"description": "Ignored: a place for anchors."}},
    }
    definitions = schema["$defs"]
    cases = []
    for name in registry.POLICIES:
        settings = _settings(name).model_json_schema(ref_template="#/$defs/{model}")
        definitions |= settings.pop("$defs", {})
        definitions[settings["title"]] = settings
        cases.append(
            {
                "if": {"properties": {"use": {"const": name}}, "required": ["use"]},
                "then": {"properties": {"settings": {"$ref": f"#/$defs/{settings['title']}"}}},
            }
        )
    definitions["PolicyConfig"]["allOf"] = cases
    outside = GatewaySettings.model_json_schema(ref_template="#/$defs/{model}")
    definitions[outside["title"]] = outside
    served = {
        "if": {"properties": {"use": {"const": OUTSIDE}}, "required": ["use"]},
        "then": {"properties": {"settings": {"$ref": f"#/$defs/{outside['title']}"}}},
    }
    for env in ("EnvConfig", "EnvOverride"):
        definitions[env]["allOf"] = [served]
    for steps in (schema["properties"]["steps"], definitions["RoundConfig"]["properties"]["steps"]):
        _allow_underscores(steps)
    return schema


def _allow_underscores(number: dict[str, Any]) -> None:
    """Let an editor accept ``400_000`` too: a number to the arena, a string to readers of YAML 1.2."""
    plain = [{"type": number.pop("type"), "minimum": number.pop("minimum")}] if "type" in number else number["anyOf"]
    number["anyOf"] = [
        *plain,
        {"type": "string", "pattern": "^[0-9][0-9_]*$"},
    ]


def key_table(*, anchors: bool = False) -> str:
    """Return the keys of the file, then the settings of policies and leagues, as Markdown tables under headings.

    Args:
      anchors: whether each key gets an anchor, as ``#env.num_envs`` or ``#ppo.gamma``, in Python-Markdown's notation.
    """
    parts = []

    def add(title: str, prefix: str, rows: Iterable[Sequence[str]]) -> None:
        rows = list(rows)
        if rows:
            parts.append(f"## {title}\n\n{_table(rows, f'{prefix}.' if prefix else '', anchors=anchors)}")

    add("The file", "", _rows(RunConfig, "", set()))
    for name in registry.POLICIES:
        add(f"Settings of the policy `{name}`", name, _rows(_settings(name), "", set()))
    add(f"Settings of the environment `{OUTSIDE}`", OUTSIDE, _rows(GatewaySettings, "", set()))
    rows = [row for row in _rows(LeagueConfig, "", set()) if row[0] not in MANAGED]
    add("Settings of a league", "league.settings", rows)
    solo = SoloPayoffConfig.model_fields["type"].default
    add(f"`payoff` of a league of the type `{solo}`", solo, _rows(SoloPayoffConfig, "", set()))
    add("Settings of every player type", "player", _rows(PlayerConfig, "", set()))
    battle = [row for row in _rows(BattlePlayerConfig, "", set()) if row[0] not in _keys(PlayerConfig)]
    add("Settings of player types that have opponents", "player", battle)
    usual = list(_rows(BattlePlayerConfig, "", set()))
    for name in PLAYERS:
        rows = [row for row in _rows(player_type(name).Config, "", set()) if row not in usual]
        add(f"What is different for the player type `{name}`", name, rows)
    return "\n\n".join(parts)


def _keys(model: type[BaseModel]) -> set[str]:
    return {row[0] for row in _rows(model, "", set())}


def _settings(policy: str) -> type[BaseModel]:
    model = registry.policy_settings_model(policy)
    assert model is not None and issubclass(model, BaseModel)
    return model


def _table(rows: Iterable[Sequence[str]], prefix: str, *, anchors: bool) -> str:
    lines = ["| key | type | default | what it means |", "| --- | --- | --- | --- |"]
    for key, *cells in rows:
        anchor = re.sub(r"[^\w.-]", "", f"{prefix}{key}")
        first = f"`{key}`{{ #{anchor} }}" if anchors else f"`{key}`"
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in (first, *cells)) + " |")
    return "\n".join(lines)


def _rows(model: type[BaseModel], prefix: str, shown: set[type[BaseModel]]) -> Iterator[Sequence[str]]:
    """Yield key, type, default and meaning of each field; a section's keys follow it at its first occurrence."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        section, inside = _section(field.annotation)
        again = " Its keys are those above." if section in shown else ""
        if section is EnvOverride:
            again, section = " Its keys are those of `env`, and each is optional.", None
        meaning = (field.description or "").replace("<", "&lt;")  # Markdown reads <id> as a tag
        yield key, _type(field.annotation), _default(field), f"{meaning}{again}"
        if section is not None and section not in shown:
            shown.add(section)
            yield from _rows(section, f"{key}{inside}.", shown)


def _section(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """Return the model that a field holds, alone, in a list or by name, and the text between the two in a key."""
    annotation = _bare(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    origin = get_origin(annotation)
    inner = [_section(argument)[0] for argument in get_args(annotation)]
    section = next((model for model in inner if model is not None), None)
    if section is None:
        return None, ""
    if origin is dict:
        return section, ".<name>"
    return section, "[]" if origin is tuple else _section(next(a for a in get_args(annotation) if _section(a)[0]))[1]


def _bare(annotation: Any) -> Any:
    return _bare(get_args(annotation)[0]) if get_origin(annotation) is Annotated else annotation


_NAMES = {int: "whole number", float: "number", bool: "true or false", str: "text", type(None): "null", Any: "anything"}


def _type(annotation: Any) -> str:
    """Return a type in words."""
    annotation = _bare(annotation)
    if annotation in _NAMES:
        return _NAMES[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return ", ".join(_type(argument) for argument in arguments)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (tuple, list):
        inner = _bare(arguments[0])
        if get_origin(inner) is tuple:  # a list of one may be written without its brackets
            return f"list of {_type(get_args(inner)[0])} or of lists of it"
        return f"list of {_type(inner)}"
    return "mapping"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return ""
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"
