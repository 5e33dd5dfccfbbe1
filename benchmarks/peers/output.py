"""Output of a measured program: figures as a line of JSON in a file, and an exit code for a missing package."""

import json
import os
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

MISSING = 3

PACKAGES = {
    "gymnasium": "gymnasium",
    "stable_baselines3": "stable-baselines3",
    "pufferlib": "pufferlib",
    "envpool": "envpool",
    "ray": "ray",
    "sample_factory": "sample-factory",
    "mpe2": "mpe2",
    "torch": "torch",
    "sbx": "sbx-rl",
    "jax": "jax",
}
"""Packages that can affect a figure, by the names that they are imported by."""


def write_figures(**figures: Any) -> None:
    """Write figures for the process that started this program, with the versions of the loaded packages.

    Several processes write a line each.
    """
    loaded = [package for module, package in PACKAGES.items() if module in sys.modules]
    versions = ", ".join(f"{package} {metadata.version(package)}" for package in loaded)
    line = json.dumps({**figures, "versions": versions}) + "\n"
    place = os.environ.get("ARENA_BENCHMARK_RESULT")
    if place is None:
        print(line, end="")
        return
    with open(place, "a", encoding="utf-8") as file:
        file.write(line)


def run_as_program(main: Callable[..., None]) -> None:
    """Call ``main`` with the command line's arguments."""
    try:
        main(*sys.argv[1:])
    except ImportError as error:
        print(f"needs {error.name or error}")
        sys.exit(MISSING)
