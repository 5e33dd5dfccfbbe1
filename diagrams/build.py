"""Render the pictures of the structure: ``python -m diagrams.build``, or ``--check`` that they are up to date."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import canonicalize

from diagrams import (
    central_critic,
    environment_process,
    example_2v2,
    example_30_matches,
    gradient_column,
    proxy,
    worker_process,
)

HERE = Path(__file__).parent
PICTURES = {
    "environment_process.svg": environment_process.draw,
    "worker_process.svg": worker_process.draw,
    "proxy.svg": proxy.draw,
    "example_2v2.svg": example_2v2.draw,
    "example_30_matches.svg": example_30_matches.draw,
    "gradient_column.svg": gradient_column.draw,
    "central_critic.svg": central_critic.draw,
}


def stale(folder: Path = HERE) -> list[str]:
    """Return the names of pictures in ``folder`` that are missing or differ from what their sources draw."""
    names = []
    for name, draw in PICTURES.items():
        path = folder / name
        # Compared as XML: how a release of drawsvg breaks lines is not what a picture shows.
        if not path.is_file() or _content(path.read_text("utf-8")) != _content(draw()):
            names.append(name)
    return names


def _content(svg: str) -> str:
    return canonicalize(svg, strip_text=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Render all pictures, or check them; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m diagrams.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a picture is not up to date")
    if parser.parse_args(arguments).check:
        names = stale()
        print(f"not up to date: {', '.join(names)}; run python -m diagrams.build" if names else "up to date")
        return 1 if names else 0
    for name, draw in PICTURES.items():
        (HERE / name).write_text(draw(), "utf-8")
        print(HERE / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
