"""Without the ledger no one sees which change made the tests slow."""

import os
import subprocess
import sys
from pathlib import Path

from tests.ledger import Run, lines

ROOT = Path(__file__).parents[1]


def test_folders_and_tests_stand_beside_those_of_the_last_run():
    """A folder that became dearer, or that went, would not be seen."""
    last = Run("2026-01-01 10:00", 9.0, {"tests/a/test_x.py::t[1]": 2.0, "tests/gone/test_z.py::t": 5.0})
    now = Run("2026-01-02 10:00", 30.0, {"tests/a/test_x.py::t[1]": 10.5, "tests/test_y.py::T::t": 20.0})
    assert list(lines(now, last)) == [
        "seconds by folder, of all test processes together; since the last run, 2026-01-01 10:00",
        "    30.5 s    +23.5  all 2 tests",
        "    30.0 s    +21.0  by the clock",
        "    20.0 s    +20.0  tests/test_y.py",
        "    10.5 s     +8.5  tests/a",
        "     0.0 s     -5.0  tests/gone",
        "the 20 dearest tests",
        "    20.0 s    +20.0  tests/test_y.py::T::t",
        "    10.5 s     +8.5  tests/a/test_x.py::t[1]",
    ]


def test_a_run_is_compared_with_the_last_one_that_passed(tmp_path: Path):
    """Figures of a run that failed, or of tests chosen by name, would be compared with whole runs."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.ledger import Ledger, selection\n\n"
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--quick', action='store_true')\n"
        "    parser.addoption('--room', action='append', default=[])\n\n"
        "def pytest_configure(config):\n"
        "    if selection(config) is not None:\n"
        "        config.pluginmanager.register(Ledger(selection(config)))\n"
    )
    test = tmp_path / "tests" / "test_one.py"

    def ledger(text: str, *arguments: str) -> str:
        test.write_text(f"def test_it():\n    {text}\n")
        command = [sys.executable, "-m", "pytest", *arguments]
        alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return subprocess.run(
            command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=60, check=False
        ).stdout

    assert "dearest" in ledger("assert False") and "since the last run" not in ledger("pass")
    assert "dearest" not in ledger("pass", "tests/test_one.py") + ledger("pass", "-k", "it")
    assert "since the last run" not in ledger("pass", "--quick")
    assert "since the last run" in ledger("pass") and "since the last run" in ledger("pass", "--quick")
