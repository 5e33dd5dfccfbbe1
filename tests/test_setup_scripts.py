"""The two commands of a fresh machine explain themselves, and report what is missing and what to do."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(script: Path, *arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(script), *arguments],
        cwd=cwd,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Files that the scripts read of a fresh clone, in a path with a space."""
    clone = tmp_path / "my clones" / "arena"
    clone.mkdir(parents=True)
    shutil.copytree(ROOT / "launch", clone / "launch")
    for name in ("setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, clone)
    (clone / "game.yaml").touch()
    return clone


@pytest.mark.parametrize("script", ["local.sh", "test.sh"])
def test_help_says_how_to_call_it_and_installs_nothing(script: str, checkout: Path) -> None:
    ran = run(checkout / "launch" / script, "--help", cwd=checkout.parent)
    assert ran.returncode == 0
    assert f"launch/{script}" in ran.stdout
    assert "shellcheck" not in ran.stdout
    assert not (checkout / ".venv").exists()


def test_without_a_config_the_usage_is_an_error(checkout: Path) -> None:
    ran = run(checkout / "launch" / "local.sh", cwd=checkout)
    assert ran.returncode == 2
    assert "launch/local.sh CONFIG" in ran.stderr


def test_a_missing_config_is_named_before_anything_is_installed(checkout: Path) -> None:
    ran = run(checkout / "launch" / "local.sh", "configs/nope.yaml", cwd=checkout)
    assert ran.returncode == 2
    assert "there is no file configs/nope.yaml" in ran.stderr
    assert not (checkout / ".venv").exists()


def test_a_machine_without_python_is_told_what_to_install(checkout: Path) -> None:
    ran = run(checkout / "launch" / "local.sh", "game.yaml", cwd=checkout, ARENA_PYTHON="/nonexistent/python3")
    assert ran.returncode == 1
    assert "expected Python 3.10 to 3.14" in ran.stderr
    assert "apt-get install python3 python3-venv" in ran.stderr


def test_a_python_that_cannot_make_environments_is_told_what_to_install(checkout: Path, tmp_path: Path) -> None:
    """Debian ships Python without the part of venv that installs pip."""
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\ncase "$*" in\n-c*) exit 0 ;;\nesac\necho ensurepip is not available >&2\nexit 1\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    # Only what the scripts themselves call, so that no virtualenv or uv of this machine helps out.
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "cat", "cksum", "dirname", "env", "flock", "grep", "head", "mkdir", "rm", "sed", "sleep"):
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    ran = run(checkout / "launch" / "local.sh", "game.yaml", cwd=checkout, ARENA_PYTHON=str(python), PATH=str(tools))
    assert ran.returncode == 1
    assert "ensurepip is not available" in ran.stderr, "Python's own words are part of the answer"
    assert "apt-get install python3-venv" in ran.stderr
    assert not list((checkout / ".venv").glob(".installed*")), "what failed must not count as installed"


@pytest.mark.tier("all")
def test_an_installation_that_fails_is_tried_again(checkout: Path, tmp_path: Path) -> None:
    """A pip that fails (here: an index that does not answer) leaves nothing that a second start would trust."""
    arguments = {"ARENA_PIP_ARGS": "--index-url file:///nonexistent/", "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": ""}
    for _ in range(2):
        ran = run(checkout / "launch" / "local.sh", "game.yaml", cwd=checkout, PIP_CONFIG_FILE=os.devnull, **arguments)
        assert ran.returncode == 1
        assert "the installation failed" in ran.stderr
        assert not list((checkout / ".venv").glob(".installed*"))
