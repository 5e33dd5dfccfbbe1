"""The code that a rank passes through before it is forked is light and finds a parent of its own user and job."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arena.launch import main
from arena.launch.parent import choice, client
from arena.launch.parent.started import parent_process

ROOT = Path(__file__).parents[2]

HEAVY = {
    "argparse",
    "arena.launch.command_line",
    "asyncio",
    "mpi4py",
    "numpy",
    "pydantic",
    "subprocess",
    "torch",
    "yaml",
}


def test_a_client_imports_nothing_heavy():
    """Each of a thousand ranks pays what is imported here."""
    code = "import arena.launch, arena.launch.parent.choice, sys; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not HEAVY & set(printed.split())


def test_ranks_of_a_job_derive_one_address_and_other_jobs_others(monkeypatch):
    monkeypatch.setenv("PMIX_NAMESPACE", "prterun-node-1@1")
    address = client.parent_of_job()
    assert client.parent_of_job() == address and len(address) < 108
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # is set anew in each fork
    assert client.parent_of_job() == address
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert client.parent_of_job() != address
    monkeypatch.delenv("NUMBA_DISABLE_JIT")
    monkeypatch.setenv("PMIX_NAMESPACE", "prterun-node-2@1")
    assert client.parent_of_job() != address


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be another user")
def test_a_socket_of_another_user_is_refused():
    """A rank's environment holds what its user alone may read."""
    address = f"@arena-test-{os.getpid()}"
    code = (
        "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); "
        f"s.bind({client.address(address)!r}); s.listen(); print('listens', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(PermissionError, match="another user"):
            client.connect(address, [], [], None)
        other.communicate()


@pytest.mark.parametrize(
    ("arguments", "way"),
    [
        (["run.yaml"], "spawn"),
        (["run.yaml", "--start", "fork"], "fork"),
        (["--start=auto", "run.yaml"], "auto"),
    ],
)
def test_the_command_line_precedes_the_variable(arguments, way):
    assert choice.way_to_start(arguments, {client.START: "spawn"}) == way


@pytest.mark.parametrize(
    "environ", [{"LD_PRELOAD": "libprofiler.so"}, {"SLURM_STEP_ID": "0", "SLURM_GPUS_PER_TASK": "1"}]
)
def test_ranks_whose_surroundings_a_fork_would_not_have_start_by_themselves(environ):
    assert choice.reason_to_spawn(environ) and choice.reason_to_spawn({}) is None


def test_words_before_ranks_and_forks_exclude_each_other(capsys):
    """The words start a program of their own, of which no other rank is a fork."""
    assert main(["configs/quickstart.yaml", "--start", "fork", "--rank-command", "nice -n 3"]) == 2
    assert "--rank-command" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["/nowhere/at/all", "/tmp/" + "x" * 110])
def test_a_parent_at_an_impossible_address_is_refused(capsys, address):
    assert main(["parent", address]) == 2
    assert "at most 107 bytes" in capsys.readouterr().err


def test_two_processes_cannot_listen_at_one_address():
    """Clients that come at the same time start one parent."""
    address = f"@arena-test-{os.getpid()}"
    with client.listen(address), pytest.raises(OSError, match="in use"):
        client.listen(address)
    with client.listen(address) as again:  # the kernel takes the address back
        assert again.family == socket.AF_UNIX


@pytest.fixture(scope="module")
def parent():
    with parent_process() as address:
        yield address


@pytest.mark.xdist_group("parent")
@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["schema"], 0, '"$schema"'),
        (  # of several nodes, since the note on idle cores measures a step
            ["configs/cartpole.yaml", "--dry-run", "--ranks-per-node", "3"],
            0,
            "group learner",
        ),
        (["configs/cartpole.yaml", "--dry-run", "--set", "stepz=1"], 2, "did you mean 'steps'"),
        (["eval"], 2, "usage: arena eval"),
    ],
)
def test_a_command_that_is_forked_ends_as_one_that_imports_by_itself(parent, words, code, expected):
    """A user of ``arena parent`` would see other output, or another exit code."""
    line = [sys.executable, "-m", "arena.launch", *words]
    ends = []
    for environ in ({client.SOCKET: parent}, {client.SOCKET: "@arena-test-nobody"}):
        done = subprocess.run(
            line, env={**os.environ, **environ}, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
        )
        ends.append((done.returncode, done.stdout, done.stderr))
    assert ends[0] == ends[1]
    assert ends[0][0] == code and expected in ends[0][1] + ends[0][2]


@pytest.mark.xdist_group("parent")
@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\7garbage", client.LENGTH.pack(100)])
def test_a_client_that_is_killed_before_it_has_sent_everything_ends_no_one_else(parent, sent):
    """A rank that is killed as it starts would take its parent along, and with it all that the parent has forked."""
    with socket.socket(socket.AF_UNIX) as killed:
        killed.connect(client.address(parent))
        killed.sendall(sent)
    with client.connect(parent, ["schema"], [0, 1, 2], None) as connection:
        assert client.STATUS.unpack(connection.recv(client.STATUS.size, socket.MSG_WAITALL)) == (0,)


@pytest.mark.xdist_group("parent")
def test_a_forked_command_outlives_its_shell_and_obeys_signals(parent, tmp_path):
    """Under nohup it would end with the shell; or Ctrl-C would not end it."""
    place = tmp_path / "printed"
    command = shlex.join([sys.executable, "-m", "arena.launch", "fake-actor", "--port", "0"])
    line = f"nohup {command} >{place} 2>&1 & echo $!"
    environ = {**os.environ, client.SOCKET: parent, client.UNBUFFERED: "1"}
    done = subprocess.run(["bash", "-c", line], env=environ, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    pid = int(done.stdout)
    assert until(lambda: " at http" in place.read_text())
    os.kill(pid, signal.SIGHUP)
    url = place.read_text().split(" at ")[1].split()[0]
    assert main(["fake-gamecore", url, "--ticks", "1"]) == 0
    os.kill(pid, signal.SIGTERM)
    assert until(lambda: main(["fake-gamecore", url, "--ticks", "1"]) == 1)


def until(condition):
    """Return whether a condition comes true within 20 s."""
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()
