"""Draws the pictures of the site from runs: ``python docs/pictures.py`` trains for half a minute, then writes them.

The quickstart gives the terminal view, the league of the tutorial its payoff and its family tree.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"


def main() -> None:
    """Train both runs in a temporary folder and write their pictures."""
    tutorial = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    league = re.search(r"<!-- block: league.yaml -->\n```yaml\n(.*?)```", tutorial, re.DOTALL)
    assert league is not None
    with tempfile.TemporaryDirectory() as folder:

        def arena(*words: object) -> None:
            subprocess.run([sys.executable, "-m", *map(str, words)], cwd=folder, check=True)

        arena("arena.launch", ROOT / "configs" / "quickstart.yaml")
        arena("arena.report.progress", "runs/quickstart", "--at", 0.6, "--picture", PICTURES / "terminal.svg")
        Path(folder, "league.yaml").write_text(league[1], encoding="utf-8")
        arena("arena.launch", "league.yaml")
        arena("arena.launch", "league", "runs/league", "--plot")
        for name in ("league_payoff.png", "league_family.png"):
            shutil.copy(Path(folder, "runs", "league", "plots", name), PICTURES)


if __name__ == "__main__":
    main()
