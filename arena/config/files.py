"""Paths in a configuration: relative to the current directory, then to the configuration file."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationInfo

from arena.common.registry import PICKLED
from arena.common.validation import Place, Problem, describe_value, refusal

CODE = "code"
"""Folder of a run directory with the classes and functions of a notebook, and with copies of a user's files."""


def copied_name(path: Path) -> str:
    """Return the name of the copy of a user's file in ``CODE``."""
    return f"{path.stem}-{hashlib.sha256(str(path).encode()).hexdigest()[:8]}{path.suffix}"


def existing(place: str, info: ValidationInfo) -> Path:
    """Return the file or directory ``place``, searched from the current directory, then beside the config file."""
    folders = [Path.cwd()]
    if info.context and "folder" in info.context:
        folders.append(info.context["folder"])
    for folder in folders:
        path = (folder / Path(place).expanduser()).resolve()
        if path.exists():
            return path
    raise ValueError(f"there is no file {place!r} (looked in {', then in '.join(map(str, dict.fromkeys(folders)))})")


def located(use: str, info: ValidationInfo) -> str:
    """Return ``use`` with the absolute path of its file, if it refers to one."""
    place, colon, name = use.partition(":")
    if place.endswith((".py", PICKLED)) and info.context and "folder" in info.context and not Path(place).exists():
        # Of a run directory that was moved, or of a user's files that have gone.
        own = Path(place).name if place.endswith(PICKLED) else copied_name(Path(place))
        copy = info.context["folder"] / CODE / own
        place = str(copy) if copy.exists() or place.endswith(PICKLED) else place
    if not place.endswith((".py", PICKLED)):
        return use
    if not (colon and name):
        raise ValueError(
            f"expected path/to/file.py:name, found {describe_value(use)}: append the name of a class or function"
        )
    return f"{existing(place, info)}:{name}"


def with_code_located(settings: Mapping[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """Return the settings of a built-in policy with absolute paths of the files of its networks and their weights."""
    encoder = settings.get("encoder")
    found = dict(settings)
    if isinstance(encoder, Mapping):
        found["encoder"] = {key: _located(part, ("encoder", key), info) for key, part in encoder.items()}
    for name in ("encoder", "network"):
        if isinstance(settings.get(name), str):
            found[name] = _located(settings[name], (name,), info)
    if isinstance(settings.get("encoder_weights"), str):
        try:
            found["encoder_weights"] = weights_place(settings["encoder_weights"], info)
        except ValueError as error:
            raise refusal([Problem(("encoder_weights",), str(error))]) from None
    return found


def _located(value: Any, place: Place, info: ValidationInfo) -> Any:
    if isinstance(value, Mapping) and "use" in value:
        return {**value, "use": _located(value["use"], (*place, "use"), info)}
    try:
        return located(value, info) if isinstance(value, str) else value
    except ValueError as error:
        raise refusal([Problem(place, str(error), value)]) from None


def weights_place(place: str, info: ValidationInfo) -> str:
    """Return the absolute path of a weights file, or ``RUN:PLAYER`` with the absolute path of the run directory."""
    folder, colon, player = place.rpartition(":")
    if not colon or place.endswith(".safetensors"):
        if info.context and "folder" in info.context and not Path(place).exists():
            own = info.context["folder"].joinpath("players", *Path(place).parts[-2:])
            place = str(own) if own.is_file() else place  # of a run directory that was moved
        return str(existing(place, info))
    run = existing(folder, info)
    if not (run / "config.yaml").is_file() or not player:
        raise ValueError(
            f"expected a .safetensors file, or RUN:PLAYER with a run directory, found {describe_value(place)}: "
            f"{run} is none"
        )
    return f"{run}:{player}"
