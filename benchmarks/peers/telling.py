"""How a measured program tells its figures: a line of JSON in a file; and that a package is missing: an exit code."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

MISSING = 3


def tell(**figures: Any) -> None:
    """Write figures for whoever started this program; several processes write a line each."""
    line = json.dumps(figures) + "\n"
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
