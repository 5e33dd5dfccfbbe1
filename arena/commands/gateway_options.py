"""Options of commands that serve: one for each key of ``GatewayConfig``."""

import argparse
import logging
from collections.abc import Collection
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from arena.common.errors import ConfigError
from arena.common.validation import problems
from arena.config.gateway import GatewayConfig

_PAIRS = {"settings": "KEY=VALUE", "agents": "AGENT=PLAYER"}


def add_gateway_options(parser: argparse.ArgumentParser, but: Collection[str] = ()) -> None:
    """Add an option for each key, except for those in ``but``."""
    for name, field in GatewayConfig.model_fields.items():
        if name not in but:
            parser.add_argument(f"--{name.replace('_', '-')}", dest=name, **_option(name, field))


def _option(name: str, field: FieldInfo) -> dict[str, Any]:
    """Return the keywords of an option for a key of the configuration."""
    text = (field.description or "").rstrip(".").replace("%", "%%")
    if field.annotation is bool:
        return {"action": "store_true", "default": None, "help": text}
    if name == "allow_origins":
        return {"action": "append", "metavar": "ORIGIN", "help": f"{text}; may be repeated"}
    if name in _PAIRS:
        return {"action": "append", "default": [], "metavar": _PAIRS[name], "help": f"{text}; may be repeated"}
    return {"metavar": "VALUE", "help": f"{text} (default: {field.default})"}


def gateway_config(arguments: argparse.Namespace) -> GatewayConfig:
    """Return the limits that the command line sets.

    Raises:
      ConfigError: a value is out of its bounds.
    """
    values: dict[str, Any] = {}
    for name, field in GatewayConfig.model_fields.items():
        value = getattr(arguments, name, None)
        if name in _PAIRS:
            values[name] = dict(_pair(name, item) for text in value or () for item in _items(name, text))
        elif value is not None:
            as_it_is = not isinstance(value, str) or field.annotation in (str, str | None)
            values[name] = value if as_it_is else yaml.safe_load(value)
    try:
        return GatewayConfig(**values)
    except ValidationError as error:
        place, text, _ = next(iter(problems(error, GatewayConfig)))
        raise ConfigError(f"--{str(place[0]).replace('_', '-')}: {text}") from error


def log_requests(config: GatewayConfig) -> None:
    """Write a line for each request to standard error, if configured."""
    if not config.access_log:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("arena.access")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _items(name: str, text: str) -> list[str]:
    return text.split(",") if name == "agents" else [text]


def _pair(name: str, text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--{name}: expected {_PAIRS[name]}, found {text!r}")
    return key, value if name == "agents" else yaml.safe_load(value)
