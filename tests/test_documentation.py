"""The README and the site are what a user copies first: they must work as printed."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from arena.common.registry import POLICIES, make_environment
from arena.config.run import load_config
from arena.envs.adapters.kinds import KINDS
from arena.envs.contract import EnvironmentContract
from arena.envs.interface import Environment
from arena.launch.commands import COMMANDS
from arena.launch.preflight.inspection import inspect_run
from arena.plan.layout import ranks_of_run
from arena.records.database import SCHEMA
from arena.sweeps.configuration import load_sweep
from benchmarks.comparison import SYSTEMS, written

ROOT = Path(__file__).parents[1]
README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial.md"
GUIDES = ROOT / "docs" / "guides"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "configs").glob("*.md")]
BLOCK = re.compile(r"<!-- block: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)
LIMIT = 15
"""Lines of an example in the README."""


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return name and text of the files that a page shows."""
    return BLOCK.findall(page.read_text("utf-8"))


def cut(text: str) -> str:
    """Return files or commands with a fortieth of their steps: what a page shows learns, a test only runs it."""
    return re.sub(
        r"\b((?:steps|one_phase_step)(?:: |=))([\d_]+)", lambda found: f"{found[1]}{int(found[2]) // 40}", text
    )


def script(page: Path) -> str:
    """Return a shell script that writes the files of a page and runs its commands, in their order, with fewer steps."""
    lines = ["set -e"]
    for name, text, commands in re.findall(
        r"<!-- block: (\S+) -->\n```\w+\n(.*?)```|```bash\n(.*?)```", page.read_text("utf-8"), re.DOTALL
    ):
        lines.append(f"cat >{name} <<'END OF FILE'\n{text}END OF FILE" if name else commands)
    text = re.sub(r"^launch/test.sh.*$", "", "\n".join(lines), flags=re.MULTILINE)  # this is one of its tests
    return cut(re.sub(r"^mpirun ", "mpirun --oversubscribe ", text, flags=re.MULTILINE))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that has what a clone has, and keeps its runs to itself."""
    for name in ("launch", "examples", ".venv"):
        (tmp_path / name).symlink_to(Path(sys.prefix) if name == ".venv" else ROOT / name)
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    quickstart = tmp_path / "configs" / "quickstart.yaml"
    quickstart.write_text(cut(quickstart.read_text("utf-8")), encoding="utf-8")
    return tmp_path


@pytest.mark.mpirun
@pytest.mark.slow
@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(
    ("page", "runs"),
    [
        pytest.param(
            README, ["league", "mine", "own", "quickstart", "scripted", "walk"], marks=pytest.mark.tier("default")
        ),
        (TUTORIAL, ["duel", "league", "learner", "quickstart", "walk"]),
    ],
    ids=["README", "tutorial"],
)
def test_every_command_of_a_page_runs(page: Path, runs: list[str], folder: Path) -> None:
    """A newcomer would copy a command or a file that fails; only a shell shows this."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        ["bash", "-c", script(page)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert sorted(path.name for path in (folder / "runs").iterdir()) == runs
    for name in runs:
        with sqlite3.connect(folder / "runs" / name / "arena.sqlite") as records:
            assert {code for (code,) in records.execute("SELECT exit FROM runs")} == {0}
            assert records.execute("SELECT what FROM faults").fetchall() == []
    quickstart = folder / "runs" / "quickstart"
    assert "blue" in (quickstart / "summary.txt").read_text("utf-8")
    assert (quickstart / "plots" / "returns.png").is_file() and list(quickstart.glob("players/blue/*.safetensors"))


def test_the_readme_is_short_and_so_are_its_examples() -> None:
    """A longer page would not be read to its end."""
    assert len(README.read_text("utf-8").splitlines()) <= 200
    assert {name: len(text.splitlines()) for name, text in blocks(README) if len(text.splitlines()) > LIMIT} == {}


def test_figures_beside_peers_are_the_measured_ones() -> None:
    """A figure of the README would differ from what was measured."""
    text = README.read_text("utf-8")
    assert text == written(text), "renew it: python -m benchmarks.comparison"


FEATURES = {
    "sweep": "sweep", "search over settings": "sweep", "league": "league", "export": "export", "serv": "serve",
    "compar": "compare", "tracker": "track",
}  # fmt: skip
"""Words for what a command of the arena does, and the command."""


def test_the_comparison_names_nothing_that_exists_here():
    """A newcomer would take another system for what this one has."""
    for system in SYSTEMS:
        for word, command in FEATURES.items():
            assert command in COMMANDS and word not in system.beyond.lower(), f"{system.name}: {word}"


def test_the_readme_names_the_algorithms_and_versions_that_there_are():
    text = (ROOT / "README.md").read_text("utf-8")
    named = re.search(r"the algorithms in here \(([^)]+)\)", text)
    assert named is not None
    assert {name.lower() for name in named[1].split(", ")} == POLICIES.keys() - {"random", "external", "sb3"}
    setup = (ROOT / "setup.py").read_text("utf-8")
    minors = re.search(r"for minor in range\((\d+), (\d+)\)", setup)
    assert minors is not None
    first, last = int(minors[1]), int(minors[2]) - 1
    assert text.count(f"Python 3.{first} to 3.{last}") == 2 and f'python_requires=">=3.{first}"' in setup


def test_the_number_of_ranks_is_the_one_of_the_plan(tmp_path: Path) -> None:
    """A number of ranks in the text would be wrong."""
    shown = {**dict(blocks(README)), **dict(blocks(GUIDES / "matches.md")), **dict(blocks(GUIDES / "environments.md"))}
    for name, text in [*shown.items(), *blocks(README)]:
        (tmp_path / name).write_text(text, encoding="utf-8")
    expected = {"walk.yaml": 5, "league.yaml": 7, "table.yaml": 15, "robin.yaml": 16, "rounds.yaml": 5}
    assert {name: ranks_of_run(load_config(tmp_path / name)) for name in expected} == expected
    (name, text), *_ = blocks(GUIDES / "leagues.md")
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert ranks_of_run(load_config(tmp_path / name)) == 13


class Shown(EnvironmentContract):
    """An environment that a page shows."""

    page = GUIDES / "environments.md"

    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be where the files of the page are."""
        for name, text in blocks(self.page):
            (tmp_path / name).write_text(text, encoding="utf-8")
        monkeypatch.chdir(tmp_path)


class TestWalk(Shown):
    """The Gymnasium environment of the guide would be refused, or break a run."""

    def make_environment(self) -> Environment:
        """Return the guide's walk."""
        return make_environment("walk.py:Walk", {"length": 5})


class TestMeet(Shown):
    """The list environment of the guide would be refused, or break a run."""

    def make_environment(self) -> Environment:
        """Return the guide's meet."""
        return make_environment("meet.py:Meet", {"length": 5})


class TestTeam(Shown):
    """The team of Tuple spaces in the guide would be refused, or break a run."""

    page = GUIDES / "bring_your_environment.md"

    def make_environment(self) -> Environment:
        """Return the guide's team."""
        return make_environment("team.py:Team", {})


class TestCars(Shown):
    """The RLlib environment of the guide would be refused, or break a run."""

    page = GUIDES / "bring_your_environment.md"

    def make_environment(self) -> Environment:
        """Return the guide's cars."""
        return make_environment("cars.py:Cars", {"config": {"cars": 3}})


class TestBattle(Shown):
    """The pymarl environment of the guide would be refused, or break a run."""

    page = GUIDES / "bring_your_environment.md"

    def make_environment(self) -> Environment:
        """Return the guide's battle."""
        return make_environment("battle.py:Battle", {})


def test_the_guide_lists_every_kind_of_environment() -> None:
    """A user would not find what runs."""
    text = (GUIDES / "bring_your_environment.md").read_text("utf-8")
    rows = [line.replace("`", "") for line in text.splitlines() if line.startswith("| a")]
    for kind in KINDS:
        words = re.sub(r" \(.*", "", kind.description)
        assert any(words in row or words.removeprefix("a PettingZoo ") in row for row in rows), words


class TestShortWalk(Shown):
    """The environment of the README would be refused, or break a run."""

    page = README

    def make_environment(self) -> Environment:
        """Return the README's walk."""
        return make_environment("walk.py:Walk", {})


def test_contract_test_of_the_guide_is_one(tmp_path: Path) -> None:
    """The lines that the guide shows would not be collected, or name another environment."""
    for name, text in blocks(GUIDES / "environments.md"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_walk.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 5


def test_managers_of_the_guide_run(tmp_path: Path) -> None:
    """The program in the guide would fail."""
    (tmp_path / "managers.py").write_text(dict(blocks(GUIDES / "environments.md"))["managers.py"], encoding="utf-8")
    subprocess.run([sys.executable, "managers.py"], cwd=tmp_path, timeout=120, check=True)


def test_policy_of_the_guide_is_the_one_of_the_configuration() -> None:
    """The guide would show another policy than the one that is trained and measured."""
    source = (ROOT / "configs/policies/reinforce.py").read_text("utf-8")
    trained = re.sub(r"  # noqa: \w+", "", source.partition("\n\n")[2])
    assert dict(blocks(GUIDES / "policies.md"))["reinforce.py"] == trained


def test_queries_fit_the_records() -> None:
    """A table or column would have been renamed since the query was written."""
    queries = [text for _, text in blocks(ROOT / "docs" / "reference" / "run_directory.md")]
    assert len(queries) >= 10
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA)
    for query in queries:
        connection.execute(query)
    connection.close()


def test_every_yaml_of_the_pages_that_shows_a_run_loads(tmp_path: Path) -> None:
    """A configuration that the documentation shows would be refused."""
    shown = 0
    for page in PAGES:
        for name, text in blocks(page):
            if name.endswith(".py"):
                (tmp_path / name).write_text(text, encoding="utf-8")
    for page in PAGES:
        for name, text in blocks(page):
            if name.endswith(".yaml"):
                (tmp_path / name).write_text(text, encoding="utf-8")
                load_sweep(tmp_path / name) if page.name == "sweeps.md" else load_config(tmp_path / name)
                shown += 1
    assert shown >= 8


class TestNearest(Shown):
    """The environment beside the guide's encoder would be refused, or break a run."""

    page = GUIDES / "networks.md"

    def make_environment(self) -> Environment:
        """Return the guide's set of others."""
        return make_environment("nearest.py:Nearest", {})


def test_networks_of_the_guide_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder, the extractor or the network of the guide would be refused."""
    monkeypatch.chdir(tmp_path)
    shown = dict(blocks(GUIDES / "networks.md"))
    for name, text in shown.items():
        Path(name).write_text(text, encoding="utf-8")
    runs = [name for name in shown if name.endswith(".yaml")]
    assert len(runs) == 4
    for name in runs:
        inspect_run(load_config(Path(name)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """A picture or a page would be missing."""
    places = [place for place in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")) if "://" not in place]
    assert [place for place in places if not (page.parent / place).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    """A page would send its reader to a file that was moved."""
    if page.name == "CHANGELOG.md":  # tells of files as they were
        return
    text = page.read_text("utf-8")
    named = set(re.findall(r"(?<![\w/])(?:configs|launch|examples|benchmarks|diagrams|tests|docs)/[\w/]+\.\w+", text))
    assert [name for name in sorted(named) if not (ROOT / name).exists() and "NAME" not in name] == []


def test_modules_of_benchmarks_that_a_page_names_exist() -> None:
    """A command beside a figure would not be there."""
    named = {name for page in PAGES for name in re.findall(r"python -m (benchmarks\.\w+)", page.read_text("utf-8"))}
    assert len(named) > 5
    assert [name for name in sorted(named) if not (ROOT / f"{name.replace('.', '/')}.py").exists()] == []
