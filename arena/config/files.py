"""Paths in a configuration: relative to the current directory, then to the configuration file."""

from pathlib import Path

from pydantic import ValidationInfo

from arena.common.registry import PICKLED
from arena.common.validation import describe_value

CODE = "code"
"""Folder of a run directory with the classes and functions of a notebook."""


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
    if place.endswith(PICKLED) and info.context and "folder" in info.context and not Path(place).exists():
        place = str(info.context["folder"] / CODE / Path(place).name)  # of a run directory that was moved
    if not place.endswith((".py", PICKLED)):
        return use
    if not (colon and name):
        raise ValueError(
            f"expected path/to/file.py:name, found {describe_value(use)}: append the name of a class or function"
        )
    return f"{existing(place, info)}:{name}"


def weights_place(place: str, info: ValidationInfo) -> str:
    """Return the absolute path of a weights file, or ``RUN:PLAYER`` with the absolute path of the run directory."""
    folder, colon, player = place.rpartition(":")
    if not colon or place.endswith(".safetensors"):
        return str(existing(place, info))
    run = existing(folder, info)
    if not (run / "config.yaml").is_file() or not player:
        raise ValueError(
            f"expected a .safetensors file, or RUN:PLAYER with a run directory, found {describe_value(place)}: "
            f"{run} is none"
        )
    return f"{run}:{player}"
