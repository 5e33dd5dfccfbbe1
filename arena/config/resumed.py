"""Stored configurations of runs, and settings that a resumed run keeps although their defaults have changed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from arena.common import registry
from arena.config.run import RunConfig, load_config
from arena.config.yaml_source import read


def load_stored_config(stored: Path) -> RunConfig:
    """Read the stored configuration of a run, of this version or an older one, with all defaults written out.

    Raises:
      ConfigError: see ``load_config``.
    """
    policies = read(stored, named=["policies"]).data.get("policies")
    overrides = []
    for name, policy in policies.items() if isinstance(policies, Mapping) else ():
        settings = policy.get("settings") if isinstance(policy, Mapping) else None
        if isinstance(settings, Mapping):
            absent = _absent(policy["use"], settings)
            overrides += [_override(name, key, value) for key, value in absent.items()]
    return load_config(stored, overrides)


def _absent(use: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of settings that did not exist when a policy's settings were stored."""
    model = registry.policy_settings_model(use) if use in registry.POLICIES else None
    return {key: value for key, value in getattr(model, "absent", {}).items() if key not in settings}


def _override(policy: str, key: str, value: Any) -> str:
    return f"policies.{policy}.settings.{key}={json.dumps(value)}"


def kept_settings(path: Path, overrides: Sequence[str], stored: Path) -> list[str]:
    """Return overrides for settings that a file omits and that are stored with other values than today's defaults.

    Args:
      path: configuration file of the resumed run.
      overrides: see ``load_config``.
      stored: stored configuration of the run, with all defaults written out.

    Returns:
      Overrides, to be put before ``overrides``.
    """
    requested = read(path, overrides, named=["policies"]).data.get("policies")
    stored_policies = read(stored, named=["policies"]).data.get("policies")
    if not isinstance(requested, Mapping) or not isinstance(stored_policies, Mapping):
        return []
    overrides_kept = []
    for name, policy in stored_policies.items():
        use, present = policy["use"], requested.get(name)
        if not isinstance(present, Mapping) or present.get("use") != use or use not in registry.POLICIES:
            continue
        model = registry.policy_settings_model(use)
        assert model is not None
        all_stored = {**_absent(use, policy["settings"]), **policy["settings"]}
        for key, value in _changed(model, present.get("settings") or {}, all_stored).items():
            overrides_kept.append(_override(name, key, value))
    return overrides_kept


def _changed(model: type[BaseModel], settings: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored settings that differ from the defaults, are not given, and are valid beside the given ones."""
    defaults = json.loads(model().model_dump_json())
    fitting: dict[str, Any] = {}
    for key, value in stored.items():
        if key in defaults and key not in settings and value != defaults[key]:
            try:
                model(**{**settings, **fitting, key: value})
            except ValidationError:
                continue  # such as minibatches, if minibatch_size is given
            fitting[key] = value
    return fitting
