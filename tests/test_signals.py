"""Tests of Ctrl-C would wait in vain where the suite is started in the background, as CI services do."""

import os
import signal
import subprocess
import sys
from pathlib import Path

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1)

INSIDE = "ARENA_TEST_SIGNALS"

IGNORED = "grep SigIgn /proc/self/status"


def ignore() -> None:
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)


def test_programs_under_test_have_the_default_handling_of_signals():
    """The test runs itself in a suite that has all of them ignored, in a process of pytest-xdist as always."""
    if INSIDE in os.environ:
        ignored = int(subprocess.run(IGNORED.split(), capture_output=True, text=True, check=True).stdout.split()[1], 16)
        assert [number.name for number in NUMBERS if ignored & 1 << number - 1] == []
        for number in NUMBERS:
            os.kill(os.getpid(), number)  # without effect on the suite, as whoever started it expects
        return
    suite = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", __file__],
        env={**os.environ, INSIDE: "1"},
        cwd=Path(__file__).parents[1],
        preexec_fn=ignore,
        restore_signals=False,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert suite.returncode == 0 and "1 passed" in suite.stdout, suite.stdout + suite.stderr
