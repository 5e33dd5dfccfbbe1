"""Ranks that are forks of one parent process behave as ranks that start by themselves, and none outlives its run."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .launching import ask_workers, run_arena, run_mpirun, succeed, tell_all, write_config

pytestmark = pytest.mark.rooms("launch")

ENDED_WITHIN = 5.0

BUSY = """
import os
import signal
import time
from pathlib import Path


class Busy:
    def __init__(self, env, group, place, dies=False):
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        (Path(place) / f"worker-{group.rank}").write_text(str(os.getpid()))
        while True:  # user code that looks at nothing
            pass

    def run(self, steps):
        pass
"""


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    """Start a parent process for each run: tests here kill it."""
    monkeypatch.setenv("ARENA_START", "fork")
    monkeypatch.delenv("ARENA_PARENT", raising=False)


def busy_config(place: Path, **settings: object) -> dict:
    (place / "busy.py").write_text(BUSY)
    return {
        "steps": 10,
        "env": {"use": "gymnasium:CartPole-v1"},
        "policies": {"p": {"use": f"{place / 'busy.py'}:Busy", "settings": {"place": str(place), **settings}}},
        "matches": [{"seats": ["p"], "replicas": 2}],
    }


def test_forks_share_a_parent_but_no_random_numbers_and_take_over_what_the_client_had(tmp_path, monkeypatch):
    """Only a rank of a real mpirun has a client; one run answers all questions."""
    monkeypatch.setenv("ARENA_OF_A_TEST", "sp\u00e4t\udcff")  # not all environment variables are UTF-8
    expression = (
        "__import__('json').dumps([os.getppid(), os.environ['ARENA_OF_A_TEST'], os.getcwd(), os.umask(0o27), "
        "__import__('resource').getrlimit(7), "
        "__import__('random').random(), __import__('numpy').random.rand(), float(__import__('torch').rand(1)), "
        "'ARENA_PARENT' in os.environ, id(int), __import__('gc').get_freeze_count() > 100_000, "
        "os.environ['OMPI_MCA_mpi_yield_when_idle'], Path('/proc/self/cmdline').read_text()])"
    )
    before, limits = os.umask(0o27), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
    try:
        first, second = (json.loads(answer) for answer in ask_workers(tmp_path, expression))
    finally:
        os.umask(before)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert first[0] == second[0] != os.getpid()
    assert first[1:4] == ["sp\u00e4t\udcff", str(tmp_path), 0o27]
    assert first[4] == [200, limits[1]]
    assert all(mine != other for mine, other in zip(first[5:8], second[5:8], strict=True))
    assert first[8] is False
    assert first[9] == second[9], "the forks lie at other addresses"
    assert first[10:12] == [True, "1"], "frozen objects; a variable that imports set"
    assert first[12].startswith(f"{sys.executable} -m arena.launch {tmp_path}"), "what ps shows"


MEASURED = """
from gymnasium.envs.classic_control import CartPoleEnv


class Measured(CartPoleEnv):
    def __init__(self, place):
        super().__init__()
        self._place, self._steps = place, 0

    def step(self, action):
        self._steps += 1
        if self._steps == 300:
            with open("/proc/self/smaps_rollup") as file:
                sizes = [int(line.split()[1]) for line in file if line.startswith("Private_")]
            with open(self._place, "w") as file:
                print(sum(sizes), file=file)
        return super().step(action)
"""


def test_fork_and_spawn_end_with_the_same_weights_and_no_more_private_memory(tmp_path):
    """The weights of a deterministic run under mpirun are what users compare; only its environment process is one."""
    (tmp_path / "measured.py").write_text(MEASURED)
    config = {
        "steps": 400,
        "deterministic": True,
        "policies": {"p": {"use": "ppo"}},
        "matches": [{"seats": ["p"]}],
    }
    weights, kilobytes = [], []
    for start in ("fork", "spawn"):
        place = tmp_path / f"{start}.txt"
        env = {"use": f"{tmp_path / 'measured.py'}:Measured", "settings": {"place": str(place)}}
        outcome = succeed(run_arena(tmp_path, {**config, "name": start, "env": env}, "--start", start))
        weights.append(max((outcome.directory / "players" / "p").glob("[0-9]*.safetensors")).read_bytes())
        kilobytes.append(int(place.read_text()))
    assert weights[0] == weights[1]
    assert kilobytes[0] <= kilobytes[1]


@pytest.mark.tier("default")
def test_an_mpirun_of_ones_own_forks_from_a_parent_of_the_job_with_its_variables_and_threads(tmp_path, shared_parent):
    """Only mpirun starts ranks without the arena's launcher.

    A parent with other variables refuses them, and they make one. NumPy has the requested threads, and they compute.
    """
    expression = (
        "__import__('json').dumps([os.getppid(), __import__('threadpoolctl').threadpool_info(), "
        "float((__import__('numpy').ones((600, 600)) @ __import__('numpy').ones(600)).sum())])"
    )
    path = tell_all(tmp_path, expression)
    environment = {**os.environ, "ARENA_PARENT": shared_parent, "PYTHONHASHSEED": "5", "OMP_NUM_THREADS": "3"}
    line = [str(Path(sys.executable).parent / "mpirun"), "--oversubscribe", "--bind-to", "none", "-n", "5"]
    done = run_mpirun([*line, sys.executable, "-m", "arena.launch", str(path)], env=environment, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (first, threads, product), (second, *_) = (
        json.loads((tmp_path / f"worker-{worker}").read_text()) for worker in range(2)
    )
    assert first == second and product == 600.0**2
    assert {library["num_threads"] for library in threads if library["user_api"] == "blas"} == {3}
    wait_until(lambda: not runs(first), ENDED_WITHIN)


def test_a_misspelt_way_of_starting_is_refused(tmp_path, monkeypatch):
    """The variable is read by the command itself, before mpirun; no rank starts."""
    monkeypatch.setenv("ARENA_START", "forked")
    outcome = run_arena(tmp_path, busy_config(tmp_path))
    assert outcome.code == 2 and "expected one of auto, fork, spawn, found 'forked'" in outcome.errors


def test_a_fork_that_is_killed_is_reported_by_mpirun_like_any_rank(tmp_path):
    """mpirun's own message has to name the signal, which it learns from the client."""
    outcome = run_arena(tmp_path, busy_config(tmp_path, dies=True))
    assert outcome.code != 0 and "was killed by signal 9 (SIGKILL)" in outcome.errors


@pytest.mark.parametrize("victim", ["launcher", "mpirun", "parent", "client"])
def test_nothing_is_left_when_a_process_is_killed_while_user_code_is_busy(tmp_path, victim):
    """Only the processes of a real run can be killed."""
    path = write_config(tmp_path, busy_config(tmp_path))
    launcher = subprocess.Popen(
        [sys.executable, "-m", "arena.launch", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        files = [tmp_path / f"worker-{worker}" for worker in range(2)]
        wait_until(lambda: all(file.exists() and file.read_text() for file in files), 60)
        ranks = [int(file.read_text()) for file in files]
        parent = int(status_of(ranks[0])[1])
        mpirun = next(pid for pid in children_of(launcher.pid) if pid != parent)
        clients = children_of(mpirun)
        everything = {launcher.pid, mpirun, parent, *children_of(parent), *clients}
        chosen = {"launcher": launcher.pid, "mpirun": mpirun, "parent": parent, "client": clients[-1]}[victim]
        os.kill(chosen, signal.SIGKILL)
        if victim != "launcher":
            launcher.wait(60)
        wait_until(lambda: not any(runs(pid) for pid in everything - {launcher.pid}), ENDED_WITHIN)
    finally:
        launcher.kill()
        launcher.wait()


@pytest.mark.parametrize("victim", ["launcher", "mpirun", "parent", "client"])
def test_nothing_is_left_when_a_process_is_killed_as_soon_as_it_is_there(tmp_path, victim, monkeypatch):
    """Only the processes of a real run can be killed."""
    monkeypatch.setenv("ARENA_OF_A_TEST", str(tmp_path))
    path = write_config(tmp_path, {**busy_config(tmp_path), "policies": {"p": {"use": "random"}}})
    output = tmp_path / "output.txt"
    with output.open("wb") as file:
        launcher = subprocess.Popen([sys.executable, "-m", "arena.launch", str(path)], stdout=file, stderr=file)
    try:
        word = {"parent": b"parent.server", "client": b"client.py"}.get(victim, b"--oversubscribe")
        chosen: list[int] = []
        until = time.monotonic() + 60
        while not chosen:
            assert time.monotonic() < until and launcher.poll() is None, (
                f"expected {word.decode()}, found {lines_of(of_test(tmp_path))}, output {output.read_text()}"
            )
            chosen = of_test(tmp_path, word, launcher.pid)
        os.kill(launcher.pid if victim == "launcher" else min(chosen), signal.SIGKILL)
        if victim != "launcher":
            assert launcher.wait(60) != 0
        wait_until_gone(tmp_path, launcher.pid)
    finally:
        launcher.kill()
        launcher.wait()


def test_ranks_of_an_mpirun_of_ones_own_stop_and_go_on_with_their_clients_and_end_with_it(tmp_path, monkeypatch):
    """No launcher sees that this mpirun is killed, and user code is busy: the clients see it."""
    monkeypatch.setenv("ARENA_OF_A_TEST", str(tmp_path))
    path = write_config(tmp_path, busy_config(tmp_path))
    line = [str(Path(sys.executable).parent / "mpirun"), "--oversubscribe", "--bind-to", "none", "-n", "5"]
    mpirun = subprocess.Popen(
        [*line, sys.executable, "-m", "arena.launch", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        files = [tmp_path / f"worker-{worker}" for worker in range(2)]
        wait_until(lambda: all(file.exists() and file.read_text() for file in files), 60)
        ranks = [int(file.read_text()) for file in files]
        clients = children_of(mpirun.pid)
        for client in clients:
            os.kill(client, signal.SIGTSTP)
        wait_until(lambda: {status_of(process)[0] for process in ranks + clients} == {"T"}, ENDED_WITHIN)
        for client in clients:
            os.kill(client, signal.SIGCONT)
        wait_until(lambda: all(status_of(process)[0] != "T" for process in ranks + clients), ENDED_WITHIN)
        mpirun.kill()
        wait_until_gone(tmp_path, mpirun.pid)
    finally:
        mpirun.kill()
        mpirun.wait()


def of_test(place: Path, word: bytes = b"", owner: int = 0) -> list[int]:
    """Return the processes that have a test's variable, and a word in their command line.

    A parent process shows its variables only until it has found where its command line lies in memory, in its first
    tenths of a second; an argument is the process id of its owner, though.
    """
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes()
            # The command line that a fork shows lies where the kernel shows the environment.
            marked = f"ARENA_OF_A_TEST={place}".encode() in (folder / "environ").read_bytes().split(b"\0")
            owned = owner > 0 and b"%d" % owner in line.replace(b"\0", b" ").split(b" ")
            if (marked or owned or str(place).encode() in line) and int(folder.name) != os.getpid() and word in line:
                processes.append(int(folder.name))
    return [process for process in processes if runs(process)]


def lines_of(processes: list[int]) -> dict[int, str]:
    """Return the command lines of processes, for messages."""
    lines = {}
    for process in processes:
        with contextlib.suppress(OSError):
            lines[process] = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return lines


def wait_until(condition, seconds: float, found=lambda: "") -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, found()
        time.sleep(0.05)


def wait_until_gone(place: Path, but: int) -> None:
    """Wait until no process of a test is left but its own child, which is a zombie or about to be one."""
    wait_until(lambda: set(of_test(place)) <= {but}, ENDED_WITHIN, lambda: lines_of(of_test(place)))


def status_of(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on: state, parent, ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def runs(pid: int) -> bool:
    try:
        return status_of(pid)[0] not in "ZX"
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    return [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]
