"""A real SLURM on this machine, of two nodes or more: its own ports, keys and directories, ended with the tests."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DAEMONS = ("munged", "slurmctld", "slurmd")

CONF = """\
ClusterName=arena
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
StateSaveLocation={place}/state
SlurmctldPidFile={place}/slurmctld.pid
SlurmdSpoolDir={place}/%n
SlurmdPidFile={place}/%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobRequeue=1
ReturnToService=2
KillWait=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1
MessageTimeout=100
SlurmdTimeout=0
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE OverSubscribe=FORCE:8
"""


def what_is_missing() -> str | None:
    """Return why no SLURM can be started here, or None."""
    if os.geteuid() != 0:
        return "SLURM's daemons start tasks for users, so this needs root"
    absent = [name for name in (*DAEMONS, "sbatch", "scontrol") if shutil.which(name, path=_path()) is None]
    if absent:
        return f"{', '.join(absent)} missing: apt-get install slurmctld slurmd slurm-client munge"
    return None


class Job(NamedTuple):
    """A job as the controller reports it."""

    state: str
    restarts: int
    exit_code: str


class Cluster:
    """Nodes n1, n2 and so on, and the commands that users have.

    Args:
      place: an empty directory for what the daemons write.
      nodes: how many.
      cpus: that each node claims to have: slots for tasks; the machine may have fewer.
      memory: in MB, that each node claims to have.

    Attributes:
      environment: variables with which SLURM's commands find it, and jobs the Python of the tests.
    """

    def __init__(self, place: Path, nodes: int = 2, cpus: int = 8, memory: int = 8000) -> None:
        self.place = place
        self._nodes = [f"n{i}" for i in range(1, nodes + 1)]
        self._size = f"CPUs={cpus} RealMemory={memory}"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_", "PMIX_"))},
            "SLURM_CONF": str(place / "slurm.conf"),
            "PATH": f"{Path(sys.executable).parent}:{_path()}",
        }
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the daemons and return once all nodes are idle."""
        host = socket.gethostname().split(".")[0]
        controller, *ports = _free_ports(1 + len(self._nodes))
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} {self._size}"
            for name, port in zip(self._nodes, ports, strict=True)
        )
        conf = CONF.format(host=host, place=self.place, controller=controller, nodes=nodes)
        (self.place / "slurm.conf").write_text(conf)
        (self.place / "munge.key").write_bytes(os.urandom(128))
        (self.place / "munge.key").chmod(0o600)
        for name in ("state", *self._nodes):
            (self.place / name).mkdir()
        own = {"socket": "munge.socket", "key-file": "munge.key", "seed-file": "munge.seed", "pid-file": "munge.pid"}
        files = [f"--{option}={self.place / file}" for option, file in own.items()]
        self._daemon("munged", "--foreground", "--force", *files, f"--log-file={self.place / 'munge.log'}")
        self._until((self.place / "munge.socket").exists, "munged")
        self._daemon("slurmctld", "-D", "-f", str(self.place / "slurm.conf"))
        for name in self._nodes:
            self._daemon("slurmd", "-D", "-f", str(self.place / "slurm.conf"), "-N", name)
        idle = ["idle"] * len(self._nodes)
        self._until(lambda: self.run("sinfo", "-h", "-N", "-o", "%t", check=False).split() == idle, "the nodes")

    def stop(self) -> None:
        """End all jobs, then the daemons."""
        with contextlib.suppress(subprocess.SubprocessError, AssertionError):
            self.run("scancel", "--user=root")
            self._until(lambda: not self.run("squeue", "-h").strip(), "the last jobs", seconds=20)
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(timeout=15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def run(self, *command: str, check: bool = True, cwd: Path | None = None) -> str:
        """Run one of SLURM's commands and return what it prints."""
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{command}: {done.stdout}"
        return done.stdout

    def submit(self, place: Path, *arguments: str) -> str:
        """Submit a job from ``place``; return its number."""
        return re.findall(r"Submitted batch job (\d+)", self.run("sbatch", *arguments, cwd=place))[0]

    def job(self, number: str) -> Job:
        """Return how a job is."""
        found = dict(re.findall(r"(\w+)=(\S+)", self.run("scontrol", "show", "job", number)))
        return Job(found["JobState"], int(found["Restarts"]), found["ExitCode"])

    def wait(self, number: str, seconds: float = 90) -> Job:
        """Return how a job has ended."""
        self._until(lambda: self.job(number).state not in _UNDER_WAY, f"job {number}", seconds, every=0.5, job=number)
        return self.job(number)

    def start_again(self, number: str, times: int = 1) -> None:
        """Wait until a job is back in the queue for the n-th time, and shorten the pause that SLURM makes there."""

        def is_back() -> bool:
            job = self.job(number)
            return job.restarts == times and job.state == "PENDING"

        self._until(is_back, f"requeue of job {number}", seconds=60, job=number)
        # the credentials of the attempt that was ended are revoked to the second: later ones are other ones
        time.sleep(2)
        self.run("scontrol", "update", f"JobId={number}", "StartTime=now")

    def _daemon(self, *command: str) -> None:
        log = (self.place / f"{command[0]}-{len(self._daemons)}.out").open("wb")
        self._daemons.append(
            subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)
        )

    def _until(self, true, what: str, seconds: float = 30, every: float = 0.1, job: str | None = None) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            in_time = time.monotonic() < deadline
            assert in_time, f"waited {seconds} s for {what}\n{job and self.about(job)}\n{self.logs()}"
            time.sleep(every)

    def about(self, number: str) -> str:
        """Return how a job is, what it has printed, and all processes: why it has not ended."""
        found = self.run("scontrol", "show", "job", number)
        output = Path(dict(re.findall(r"(\w+)=(\S+)", found))["StdOut"])
        printed = output.read_text(errors="replace")[-4000:] if output.exists() else "nothing"
        return f"{found}\nit has printed: {printed}\n{self.run('ps', '-eo', 'pid,ppid,stat,wchan:20,etime,args')}"

    def logs(self) -> str:
        """Return the daemons' logs."""
        return "\n".join(f"{p.name}: {p.read_text(errors='replace')[-1500:]}" for p in self.place.glob("*.out"))


_UNDER_WAY = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED"}


@contextlib.contextmanager
def running(nodes: int = 2, cpus: int = 8, memory: int = 8000) -> Iterator[Cluster]:
    """Start a cluster, and end it afterwards; the arguments are ``Cluster``'s."""
    # Short, since the path of a socket may have 107 characters only.
    place = Path(tempfile.mkdtemp(prefix="arena-slurm-", dir="/tmp"))
    cluster = Cluster(place, nodes, cpus, memory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(place, ignore_errors=True)


def _path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
