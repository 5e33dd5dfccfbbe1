"""Minutes of the test runs in README.md and CONTRIBUTING.md: ``python -m tests.minutes`` writes them.

They are those of the last runs that have passed in this checkout, from the cache of pytest: the ledger keeps the runs
of each tier there, and ``.ci/run`` its own seconds. A run that is not there keeps the minutes that it has.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.tools.measuring import machine

ROOT = Path(__file__).parents[1]

KEPT = ROOT / ".pytest_cache" / "v" / "arena"

RUNS = {
    "quick": "ledger/quick",
    "default": "ledger/default",
    "room": "ledger/--room_worker",
    "all": "ledger/all",
    "gate": "gate",
}
"""File in ``KEPT`` of each run that has minutes."""

PHRASES = {
    "README.md": ["# tests each capability: <default> minutes on <machine>; --quick: <quick>, --all: <all>"],
    "CONTRIBUTING.md": [
        "| command | what runs | minutes on <machine> |",
        "after each change | <quick> |",
        "what a newcomer runs | <default> |",
        "before a commit | <room> |",
        "`launch/test.sh --all` | everything | <all> |",
        "(`.ci/typecheck` alone) | <gate> |",
    ],
}
"""Phrases with minutes, each once in its file."""


def with_figures(text: str, phrase: str, figures: Mapping[str, str]) -> str:
    """Return a text with figures in place of those that it has.

    Args:
      text: a text that has the phrase once.
      phrase: the phrase with ``<name>`` for each figure.
      figures: the figures by name; one that is missing stays as it is.

    Raises:
      ValueError: the text has the phrase not once.
    """
    parts = re.split(r"<(\w+)>", phrase)
    pattern = "".join(f"(?P<{part}>[^|;,\n]+)" if place % 2 else re.escape(part) for place, part in enumerate(parts))
    found = list(re.finditer(pattern, text))
    if len(found) != 1:
        raise ValueError(f"expected {phrase!r} once, found it {len(found)} times")
    new = re.sub(r"<(\w+)>", lambda name: figures.get(name[1], found[0][name[1]]), phrase)
    return text[: found[0].start()] + new + text[found[0].end() :]


def measured() -> dict[str, str]:
    """Return the minutes of each run that the cache has, and the machine."""
    where = machine()
    figures = {"machine": f"{where['cores']} cores of {where['processor']}"}
    for name, file in RUNS.items():
        if (KEPT / file).is_file():
            kept = json.loads((KEPT / file).read_text("utf-8"))
            seconds = kept[1] if isinstance(kept, list) else kept  # a ``Run`` of the ledger
            figures[name] = str(math.ceil(seconds / 60))
    return figures


def main() -> None:
    """Write the minutes."""
    figures = measured()
    for file, phrases in PHRASES.items():
        text = (ROOT / file).read_text("utf-8")
        for phrase in phrases:
            text = with_figures(text, phrase, figures)
        (ROOT / file).write_text(text, "utf-8")
    print(", ".join(f"{name}: {figure}" for name, figure in figures.items()))


if __name__ == "__main__":
    main()
