"""Without the ledger no one sees which change made the tests slow, and which tests fail by chance."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.failures import HISTORY, PastRun, read_history, unstable_before
from tests.ledger import Run, lines
from tests.minutes import PHRASES, RUNS, with_figures

ROOT = Path(__file__).parents[1]

CONFTEST = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests import choice
choice.TESTS = Path(__file__).parent / "tests"
from tests.conftest import pytest_addoption, pytest_collection_modifyitems, pytest_configure
"""

RANKS = """
import pytest
pytestmark = pytest.mark.rooms("worker")
def test_kill():
    pass
@pytest.mark.tier("default")
def test_table():
    pass
@pytest.mark.slow
def test_long():
    pass
"""


def test_folders_and_tests_stand_beside_those_of_the_last_run():
    """A folder that became dearer, or that went, would not be seen."""
    tests = {"tests/a/test_x.py::t[1]": 2.0, "tests/gone/test_z.py::t": 5.0}
    last = Run("2026-01-01 10:00", 9.0, tests, dict.fromkeys(tests, "quick"))
    tests = {"tests/a/test_x.py::t[1]": 10.5, "tests/test_y.py::T::t": 20.0}
    now = Run("2026-01-02 10:00", 30.0, tests, {"tests/a/test_x.py::t[1]": "quick", "tests/test_y.py::T::t": "all"})
    assert list(lines(now, last)) == [
        "seconds by tier and folder, of all test processes together; since the last run, 2026-01-01 10:00",
        "    30.5 s    +23.5  all 2 tests",
        "    30.0 s    +21.0  by the clock",
        "    10.5 s     +3.5  tier quick: 1 test",
        "    20.0 s    +20.0  tier all: 1 test",
        "    20.0 s    +20.0  tests/test_y.py",
        "    10.5 s     +8.5  tests/a",
        "     0.0 s     -5.0  tests/gone",
        "the 20 dearest tests",
        "    20.0 s    +20.0  tests/test_y.py::T::t",
        "    10.5 s     +8.5  tests/a/test_x.py::t[1]",
    ]


@pytest.fixture
def suite(tmp_path: Path) -> Callable[..., str]:
    """A suite with our plugins in a folder of its own: ``suite(TEXT OF THE TESTS, *arguments)`` returns its output."""
    (tmp_path / "tests" / "mpi").mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\nmarkers =\n  mpirun\n  rooms\n  tier\n  slow\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "tests" / "mpi" / "test_ranks.py").write_text(RANKS)

    def run(text: str, *arguments: str, history: str = "") -> str:
        (tmp_path / "tests" / "test_one.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", HISTORY: history},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return f"{done.stdout}{done.stderr}exit {done.returncode}"

    return run


@pytest.mark.tier("default")
def test_a_run_is_compared_with_the_last_one_that_passed(suite):
    """Figures of a run that failed, or of tests chosen by name, would be compared with whole runs."""
    fails, passes = (f"def test_it():\n    {text}\n" for text in ("assert False", "pass"))
    assert "dearest" in suite(fails) and "since the last run" not in suite(passes)
    assert "dearest" not in suite(passes, "tests/test_one.py") + suite(passes, "-k", "it")
    assert "since the last run" not in suite(passes, "--quick")
    assert "since the last run" in suite(passes) and "since the last run" in suite(passes, "--quick")


@pytest.mark.tier("default")
def test_a_process_that_crashes_is_a_failure_of_its_test_also_beside_an_older_ledger(suite, tmp_path):
    """The run would end with an error of the ledger, and the other tests' results would be lost."""
    text = "import os\ndef test_it():\n    os._exit(3)\n"
    kept = tmp_path / ".pytest_cache" / "v" / "arena" / "ledger" / "all"
    kept.parent.mkdir(parents=True)
    kept.write_text('["2026-01-01 10:00", 9.0, {}]')
    output = suite(text, "-p", "xdist", "-n", "1", "--all")
    assert "INTERNALERROR" not in output and "1 failed, 3 passed" in output and "dearest" in output, output


@pytest.mark.tier("default")
def test_each_tier_takes_its_tests_and_states_what_it_leaves_out(suite):
    """A newcomer would wait for all tests, or take a part for the whole."""
    tests = "def test_it():\n    pass\n"
    quick, default, everything = suite(tests, "--quick"), suite(tests), suite(tests, "--all")
    assert "1 passed, 3 deselected" in quick and "2 passed, 2 deselected" in default and "4 passed" in everything
    assert "launch/test.sh runs 1 test more" in quick and "launch/test.sh --all runs all, 3 tests more" in quick
    assert default.endswith("not all tests have run:\n  launch/test.sh --all runs all, 2 tests more\nexit 0")
    assert "tier default: 1 test" in everything and "not all" not in everything
    assert "1 passed" in suite(tests, "-k", "test_kill"), "what is named runs in any tier"
    assert "pytest.mark.tier: expected one of ('quick', 'default', 'all'), found ('al',)" in suite(
        "import pytest\n@pytest.mark.tier('al')\n" + tests
    )


@pytest.mark.tier("default")
def test_what_fails_among_others_and_passes_alone_is_unstable_and_may_be_so_once(suite, tmp_path):
    """A change would be held up by a test that has nothing to do with it; or one that fails by chance would stay."""
    history = str(tmp_path / "kept" / "history.json")
    fails = "def test_it():\n    print('so it was')\n    assert not 'lucky'\ndef test_other():\n    assert 1\n"
    passes = fails.replace("not 'lucky'", "1")
    assert suite(fails, "--all", history=history).endswith("exit 1") and not Path(history).exists()
    again = suite(passes, "--failed", history=history)
    assert "1 passed, 4 deselected" in again and again.endswith("exit 0")
    assert "UNSTABLE tests/test_one.py::test_it: failed among others" in again
    assert "so it was" in again and "assert not 'lucky'" in again
    [run] = read_history(Path(history))
    assert run.unstable == ["tests/test_one.py::test_it"]
    suite(fails, "--all", history=history)
    again = suite(passes, "--failed", history=history)
    assert f"FAILED {run.unstable[0]}: unstable before, on {run.day} at " in again and again.endswith("exit 1")


def test_a_test_may_be_unstable_again_after_ten_runs():
    run = PastRun("2026-01-01 10:00", "abc", ["a"])
    stable = run._replace(unstable=[])
    assert unstable_before(["a", "b"], [run, *[stable] * 8]) == {"a": run}
    assert unstable_before(["a", "b"], [run, *[stable] * 9]) == {}


@pytest.mark.tier("default")
def test_many_failures_are_no_chance_and_one_that_fails_again_is_a_failure(suite, tmp_path):
    history = str(tmp_path / "history.json")
    several = "import pytest\n@pytest.mark.parametrize('n', range({}))\ndef test_it(n):\n    assert 0\n"
    assert "expected tests that failed in the last run of a tier, found none" in suite(several.format(1), "--failed")
    suite(several.format(11))
    assert "11 tests have failed; up to 10 are run once more" in suite(several.format(11), "--failed", history=history)
    suite(several.format(2))
    assert suite(several.format(2), "--failed", history=history).endswith("exit 1")


def test_minutes_of_the_readme_are_those_of_the_last_runs():
    """A newcomer would wait for 25 minutes where nine are promised."""
    for file, phrases in PHRASES.items():
        text = (ROOT / file).read_text("utf-8")
        for phrase in phrases:
            text = with_figures(text, phrase, dict.fromkeys(("machine", *RUNS), "99"))
        names = [name for phrase in phrases for name in re.findall(r"<(\w+)>", phrase)]
        assert text.count("99") == len(names) > 3
    assert with_figures("in 25 s, all: 12\nand", "in <a> s, all: <all>", {"all": "9"}) == "in 25 s, all: 9\nand"
    with pytest.raises(ValueError, match="expected 'a <all> b' once, found it 0 times"):
        with_figures("a 1 c", "a <all> b", {})
