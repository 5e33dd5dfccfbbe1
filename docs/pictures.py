"""Draws the pictures of the site from runs: ``python docs/pictures.py`` trains for two minutes, then writes them.

The quickstart gives the terminal view, the league of the tutorial its payoff and its family tree. Both of them, six
short runs and one that fails give the pictures of the page, for which it needs playwright and a Chromium.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

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
        _draw_page(Path(folder))


TRIAL = """
name: {name}
seed: {seed}
steps: 40_000
env: {{use: "gymnasium:CartPole-v1", num_envs: 8}}
policies: {{pole: {{use: ppo, settings: {{learning_rate: {rate}}}}}}}
matches: [{{seats: [pole]}}]
"""
FAILS = """
import gymnasium


class Breaks(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (4,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        raise RuntimeError("the licence of the simulator has expired")
"""
"""An environment that never works."""


def _draw_page(folder: Path) -> None:
    """Run a comparison and a failure, and take the pictures of the page."""
    names = []
    for rate in ("3.0e-4", "3.0e-3"):
        for seed in (1, 2, 3):
            names.append(f"rate-{rate}-s{seed}")
            (folder / "trial.yaml").write_text(TRIAL.format(name=names[-1], seed=seed, rate=rate), encoding="utf-8")
            subprocess.run([sys.executable, "-m", "arena.launch", "trial.yaml"], cwd=folder, check=True)
    (folder / "simulator.py").write_text(FAILS, encoding="utf-8")
    failing = TRIAL.format(name="simulator", seed=1, rate="3.0e-4").replace("gymnasium:CartPole-v1", "simulator:Breaks")
    (folder / "failing.yaml").write_text(failing, encoding="utf-8")
    path = {**os.environ, "PYTHONPATH": str(folder)}
    subprocess.run([sys.executable, "-m", "arena.launch", "failing.yaml"], cwd=folder, check=False, env=path)
    line = [sys.executable, "-m", "arena.launch", "page"]
    with subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        link = next(word for word in page.stdout.readline().split() if word.startswith("http://"))
        try:
            _take(link, names)
        finally:
            page.terminate()


def _take(link: str, names: list[str]) -> None:
    """Take the pictures in a browser."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    compared = quote(json.dumps(names))
    addresses = {
        "page_curves": ("#/curves?run=quickstart", 900),
        "page_league": ("#/league?run=league", 900),
        "page_machine": ("#/machine?run=quickstart", 830),
        "page_failed": ("#/", 620),
        "page_compare": (f"#/compare?runs={compared}", 1080),
    }
    chromium = os.environ.get("ARENA_CHROMIUM", "/usr/bin/chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (address, height) in addresses.items():
            tab = browser.new_page(viewport={"width": 1280, "height": height}, color_scheme="light")
            tab.goto(link + address)
            tab.wait_for_timeout(4000)  # until the server has read all rows
            path = PICTURES / f"{name}.png"
            tab.screenshot(path=path)
            Image.open(path).convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(path, optimize=True)
            tab.close()
        browser.close()


if __name__ == "__main__":
    main()
