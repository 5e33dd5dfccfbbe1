"""Environments as their packages publish them train, by the files of the guide "Bring your environment".

``launch/test-zoo.sh`` installs the packages, in a folder of their own.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.mpirun, pytest.mark.rooms("envs")]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "bring_your_environment.md"
BLOCKS = dict(re.findall(r"<!-- block: (\S+) -->\n```\w+\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL))
ZOO = Path(os.environ.get("ARENA_ZOO", Path(sys.prefix) / "zoo"))
TQC = """
name: tqc
steps: 1_000
env: {use: "gymnasium:Pendulum-v1"}
policies: {p: {use: sb3, settings: {algorithm: "sb3_contrib:TQC", arguments: {learning_starts: 200}}}}
matches: [{seats: [p]}]
"""
STEPS = {"tqc": 250, "highway": 300}
"""Steps of those that take long; 2,000 for the others."""

PUBLISHED = ("minigrid", "foraging", "warehouse", "highway", "swingup", "catch", "old_gym", "tqc")
OWN = ("cars", "taxi", "simulator")


def train(place: Path, name: str, steps: int, **variables: str) -> tuple[Path, str]:
    """Run a file of the guide for some steps; return the run directory and what it has printed."""
    for file, text in {**BLOCKS, "tqc.yaml": TQC}.items():
        (place / file).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "arena.launch", f"{name}.yaml", "--set", f"steps={steps}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **variables}
    environment.pop("ARENA_PARENT", None)  # which was started without the packages
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=200, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return place / "runs" / name, done.stdout + done.stderr


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_environments_train(tmp_path: Path, name: str) -> None:
    """Under mpirun, as a user starts them: each package has its own way to print, to import and to end."""
    if not ZOO.exists():
        pytest.skip("the environments are not installed: launch/test-zoo.sh")
    path = os.pathsep.join([str(ZOO), *filter(None, [os.environ.get("PYTHONPATH")])])
    run, printed = train(tmp_path, name, STEPS.get(name, 2_000), PYTHONPATH=path)
    assert "p is finished after" in printed and (run / "arena.sqlite").is_file()
    assert "unmaintained since" not in printed and "Traceback" not in printed


def test_environments_of_dm_env_and_gym_end_as_they_state(tmp_path: Path) -> None:
    """Alone in a process: the packages must not be on the path of this one."""
    if not ZOO.exists():
        pytest.skip("the environments are not installed: launch/test-zoo.sh")
    foreign = Path(__file__).parents[1] / "environments" / "foreign.py"
    done = subprocess.run(
        [sys.executable, foreign],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ZOO)},
    )
    assert done.returncode == 0 and "all right" in done.stdout, done.stderr


@pytest.mark.parametrize("name", OWN)
def test_environments_of_the_guide_train(tmp_path: Path, name: str) -> None:
    """Under mpirun, since two matches share the ports of one machine."""
    train(tmp_path, name, 2_000)
