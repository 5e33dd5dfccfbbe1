"""The README's examples are what a user copies first: they must work as they are printed."""

import re
import sqlite3
from pathlib import Path

import pytest

from arena.common.registry import make_environment
from arena.config.run import load_config
from arena.envs.contract import EnvironmentContract
from arena.envs.interface import Environment
from arena.plan.layout import ranks_of_run
from arena.records.database import SCHEMA

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"<!-- block: (\S+) -->\n```\w+\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
TABLES = {"walk.yaml": 3, "table.yaml": 15, "robin.yaml": 16, "rounds.yaml": 5}


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the README's files in it, to be in."""
    for name, text in BLOCKS:
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestWalk(EnvironmentContract):
    """The Gymnasium environment of the README would be refused, or break a run."""

    @pytest.fixture(autouse=True)
    def _in_copied(self, copied: Path) -> None:
        """Be where the files are."""

    def make_environment(self) -> Environment:
        """Return the README's walk."""
        return make_environment("walk.py:Walk", {"length": 5})


class TestMeet(EnvironmentContract):
    """The list environment of the README would be refused, or break a run."""

    @pytest.fixture(autouse=True)
    def _in_copied(self, copied: Path) -> None:
        """Be where the files are."""

    def make_environment(self) -> Environment:
        """Return the README's meet."""
        return make_environment("meet.py:Meet", {"length": 5})


@pytest.mark.parametrize("name", TABLES)
def test_configurations_need_the_ranks_that_the_text_says(name: str, copied: Path) -> None:
    """A copied table would be refused."""
    assert ranks_of_run(load_config(copied / name)) == TABLES[name]


def test_contract_test_is_one(copied: Path) -> None:
    """The three lines that the README promises would not be collected, or name another environment."""
    text = (copied / "test_walk.py").read_text("utf-8")
    namespace: dict = {}
    exec(compile(text, "test_walk.py", "exec"), namespace)
    assert issubclass(namespace["TestWalk"], EnvironmentContract)
    namespace["TestWalk"]().test_reset_starts_an_episode()


def test_policy_is_the_one_of_the_configuration(copied: Path) -> None:
    """The README would show another policy than the one that is trained and measured."""
    source = (ROOT / "configs/policies/reinforce.py").read_text("utf-8")
    trained = re.sub(r"  # noqa: \w+", "", source.partition("\n\n")[2])
    assert (copied / "reinforce.py").read_text("utf-8") == trained


def test_queries_fit_the_records() -> None:
    """A table or column would have been renamed since the query was written."""
    queries = [text for name, text in BLOCKS if name == "query.sql"]
    assert len(queries) == 2
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA)
    for query in queries:
        connection.execute(query)
    connection.close()


def test_links_lead_somewhere() -> None:
    """A picture or page would be missing."""
    text = (ROOT / "README.md").read_text("utf-8")
    places = [place for place in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in place]
    assert len(places) > 5
    assert [place for place in places if not (ROOT / place).exists()] == []
