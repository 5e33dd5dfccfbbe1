"""If these fail, a program of the arena hangs at its end, or loses what it has printed or its exit code."""

import subprocess
import sys

import pytest

START = """
import sys, threading, time
from concurrent.futures import ThreadPoolExecutor

def simulate():
    time.sleep({seconds})

threading.Thread(target=simulate).start()
pool = ThreadPoolExecutor(1)
pool.submit(print, "pooled")
sys.argv = ["arena", *{arguments!r}]
import arena.launch
sys.exit(arena.launch.main())
"""


def start(tmp_path, seconds: float, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a program with a thread that sleeps, and an idle thread of a pool."""
    program = tmp_path / "program.py"
    program.write_text(START.format(seconds=seconds, arguments=arguments))
    return subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("arguments", "code"), [(["doctor", "--help"], 0), (["no_such_file.yaml"], 2)])
def test_a_thread_that_runs_on_is_left_and_named(tmp_path, arguments, code) -> None:
    done = start(tmp_path, 1000, *arguments)
    assert done.returncode == code
    assert "pooled" in done.stdout and ("usage" in done.stdout or "there is no file" in done.stderr)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("warning")]
    assert line.startswith("warning: a thread is left running at the end: 'Thread-1 (simulate)'")
    assert f"at {tmp_path}/program.py:6 (end threads in close(), or start them with daemon=True)" in line


def test_threads_that_end_in_time_and_those_of_pools_are_waited_for(tmp_path) -> None:
    done = start(tmp_path, 0.5, "doctor", "--help")
    assert done.returncode == 0 and "warning" not in done.stderr and "pooled" in done.stdout
