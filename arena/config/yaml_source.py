"""YAML in and out: plain data with the line of every key, and the same data as text."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import yaml

from arena.common.errors import ConfigError
from arena.common.text import did_you_mean
from arena.common.validation import Place, describe_value


class Source(NamedTuple):
    """Data read from a file.

    Attributes:
      data: mappings, lists and scalars.
      origins: place -> where its key is written: ``file.yaml:12`` or ``--set a.b``.
    """

    data: dict[str, Any]
    origins: dict[Place, str]

    def where(self, place: Place) -> str:
        """Return where ``place`` is written, or the innermost place around it that is."""
        return self.origins[self._written(place)]

    def order(self, place: Place) -> int:
        """Return a number that is larger for places written later."""
        return list(self.origins).index(self._written(place))

    def _written(self, place: Place) -> Place:
        while place and place not in self.origins:
            place = place[:-1]
        return place


class _Loader(yaml.SafeLoader):
    """Scalars as in YAML 1.2, which editors follow: ``3e-4`` is a number, ``on`` and ``12:30`` are text."""

    yaml_implicit_resolvers: ClassVar[dict] = {}  # type: ignore[misc]


class _Dumper(yaml.SafeDumper):
    """Quotes strings that YAML 1.1 or 1.2 would read as something else; writes no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write everything out in full."""
        return True


_FLOAT = re.compile(
    r"^(?:[-+]?(?:[0-9][0-9_]*)?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*\.?(?:[eE][-+]?[0-9]+)"
    r"|[-+]?[0-9][0-9_]*\.|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_INTEGER = re.compile(r"^(?:[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+)$")

for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
    _kind.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile("^<<$"), ["<"])
_Loader.add_constructor(
    "tag:yaml.org,2002:int",
    lambda loader, node: int(node.value.replace("_", ""), 0 if node.value[:2] in ("0x", "0o") else 10),
)
_Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: _float(node.value.replace("_", "").lower()))


def _float(text: str) -> float:
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


IGNORED = "x-"
"""Beginning of top-level keys that mean nothing: of places for anchors."""


def read(path: Path, overrides: Sequence[str] = (), named: Sequence[str] = ()) -> Source:
    """Read a file and apply ``key.key=value`` overrides; values are YAML, list items are named by their index.

    Args:
      path: the file.
      overrides: overrides to apply.
      named: top-level mappings from names to sections. An override creates no new name on its way to a deeper key.

    Top-level keys that begin with ``x-`` are ignored, as in compose files: places for anchors.

    Raises:
      ConfigError: the file cannot be read, is not YAML, names a key twice, or an override has no valid key.
    """
    data, origins = _parse(_text(path), str(path))
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected a mapping of keys (name: ..., steps: ...), found {describe_value(data)}")
    ignored = [key for key in data if isinstance(key, str) and key.startswith(IGNORED)]
    source = Source({key: value for key, value in data.items() if key not in ignored}, origins)
    for override in overrides:
        _override(source, override, named)
    return source


def write(data: dict[str, Any]) -> str:
    """Return ``data`` as YAML that :func:`read` reads back to the same."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        others = sorted(str(other) for other in path.parent.glob("*.y*ml")) if path.parent.is_dir() else []
        near = difflib.get_close_matches(str(path), others, n=1)
        raise ConfigError(f"there is no file {path}{f'; did you mean {near[0]}?' if near else ''}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: expected UTF-8 text, found the byte {path.read_bytes()[error.start]:#x}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def _parse(text: str, name: str, at: Place = ()) -> tuple[Any, dict[Place, str]]:
    """Return the data in ``text`` and the line of each place in it; ``at`` is the place of the whole."""
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:  # a character that is not allowed in text
        raise ConfigError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from None
    try:
        node = loader.get_single_node()
        origins: dict[Place, str] = {at: name}
        data = None if node is None else _Builder(loader, name, origins).build(node, at, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(f"{name}:{mark.line + 1 if mark else 1}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a number of thousands of digits
        raise ConfigError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from None
    finally:
        loader.dispose()
    return data, origins


class _Builder:
    """Converts composed nodes to data and records the line of each key."""

    def __init__(self, loader: _Loader, name: str, origins: dict[Place, str]) -> None:
        self._loader, self._name, self._origins = loader, name, origins
        self._flat: list[yaml.Node] = []  # nodes in which merge keys (<<) were replaced

    def build(self, node: yaml.Node, place: Place, inside: tuple[yaml.Node, ...]) -> Any:
        """Return the data of ``node`` at ``place`` inside of the nodes ``inside``."""
        if any(node is outer for outer in inside):
            self._raise_at(node, "an alias to what it stands in")
        inside = (*inside, node)
        if isinstance(node, yaml.SequenceNode):
            for number, item in enumerate(node.value):
                self._record_origin((*place, number), item)
            return [self.build(item, (*place, number), inside) for number, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place, inside)
        return self._loader.construct_object(node)

    def _mapping(self, node: yaml.MappingNode, place: Place, inside: tuple[yaml.Node, ...]) -> dict[str, Any]:
        if not any(node is flat for flat in self._flat):
            self._check_duplicates(node)
            self._loader.flatten_mapping(node)  # merged keys come first, own keys override them
            self._flat.append(node)
        data: dict[str, Any] = {}
        for key, value in node.value:
            name = self._loader.construct_object(key)
            self._record_origin((*place, name), key)
            data[name] = self.build(value, (*place, name), inside)
        return data

    def _check_duplicates(self, node: yaml.MappingNode) -> None:
        first_lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._raise_at(key, "a list or a mapping as a key")
            if key.value in first_lines:
                self._raise_at(key, f"key {key.value!r} twice (first in line {first_lines[key.value]}); keep one")
            first_lines[key.value] = key.start_mark.line + 1

    def _record_origin(self, place: Place, node: yaml.Node) -> None:
        self._origins[place] = f"{self._name}:{node.start_mark.line + 1}"

    def _raise_at(self, node: yaml.Node, text: str) -> None:
        raise ConfigError(f"{self._name}:{node.start_mark.line + 1}: found {text}")


def _override(source: Source, override: str, named: Sequence[str]) -> None:
    """Apply one ``a.b.c=value`` to ``source``, creating missing mappings on the way."""
    dotted, equals, text = override.partition("=")
    if not (equals and dotted):
        raise ConfigError(f"--set {override}: expected --set key.key=value, for example --set env.num_envs=16")
    origin = f"--set {dotted}"
    place: Place = ()
    here: Any = source.data
    *way, last = dotted.split(".")
    for name in way:
        key = _key(here, name, place, origin)
        if isinstance(here, dict) and here.get(key) is None:
            if len(place) == 1 and place[0] in named:
                raise ConfigError(f"{origin}: there is no {name!r} in {place[0]}; {did_you_mean(name, list(here))}")
            here[key] = {}
            source.origins.setdefault((*place, key), origin)
        here, place = here[key], (*place, key)
    key = _key(here, last, place, origin)
    place = (*place, key)
    for below in [known for known in source.origins if known[: len(place)] == place]:
        del source.origins[below]
    here[key], _ = _parse(text, origin)
    source.origins[place] = origin


def _key(here: Any, name: str, place: Place, origin: str) -> str | int:
    """Return ``name`` as a key or index of ``here``."""
    parent = ".".join(map(str, place))
    if isinstance(here, dict):
        return name
    if not isinstance(here, list):
        raise ConfigError(
            f"{origin}: {parent} has no keys: expected a mapping or a list there, found {describe_value(here)}"
        )
    if not (name.isdecimal() and int(name) < len(here)):
        raise ConfigError(f"{origin}: expected an index of {parent}, 0 to {len(here) - 1}, found {name!r}")
    return int(name)
