"""All ranks of a run: their hosts, their cores, and the survivors after a death."""

import contextlib
import os
import socket
import threading
import time
from typing import Any

import numpy as np

from arena.common.errors import RankLostError
from arena.common.waiting import ALONE, Waiter
from arena.comms.group import GroupChannel
from arena.comms.mpi import MPI
from arena.system import cores
from arena.system.timer_slack import relax_timer_slack

REVOKED_WITHIN = 5.0
"""Seconds within which a revoked communicator must be seen by another rank, where fault tolerance works."""

ABORTED_WITHIN = 5.0
"""Seconds within which MPI ends the job on abort, where it can."""

_LOSSES = {MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED}
MAIL, DIRECT, ANSWER, NOTHING = 1, 2, 3, 4
"""Tags of messages that are polled for, of those that are waited for, of replies, and of none."""

TAGS = 4
"""Offset of the tags for each further seat of one rank."""


class World:
    """All ranks of the run.

    Attributes:
      rank, size: number of this process, and of all processes.
      host: name of this machine.
      nodes: the node number of each rank; ranks that share memory share a node.
      hosts: the name of each rank's node: the scheduler's name for it, else the machine's.
      processes: the process id of each rank on its node; a forked rank is not the process that mpirun has started.
      cores_here: the cores of each rank of this rank's node.
      cores_share: number of cores that this rank has to itself; below 1 if ranks share them.
      cores: number of cores of all nodes together.
      origins: the number that each rank had at the start: after a death the ranks behind it move up.
      dead: numbers, at the start, of the ranks that have died.
    """

    def __init__(self) -> None:
        self.host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.origins = list(range(MPI.COMM_WORLD.size))
        self.dead: list[int] = []
        self._groups: list[MPI.Comm] = []
        self._set_up(MPI.COMM_WORLD.Dup())

    def _set_up(self, comm: MPI.Comm) -> None:
        """Collect the hosts and cores of all ranks. All ranks call it."""
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size
        self.steps, self.mail = comm.Dup(), comm.Dup()
        shared = self.comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)
        leader = shared.bcast(self.rank)
        self.cores_here = dict(shared.allgather((self.rank, cores.available_cores())))
        resting = [0] if leader == 0 else []  # the root is idle most of the time
        self.cores_share = cores.core_shares(list(self.cores_here.values()), resting)[shared.rank]
        shared.Free()
        here = cores.count_cores(self.cores_here.values()) if leader == self.rank else 0
        facts = self.comm.allgather((leader, self.host, here, os.getpid()))
        number: dict[int, int] = {}
        self.nodes = [number.setdefault(leader, len(number)) for leader, *_ in facts]
        self.hosts = [host for _, host, _, _ in facts]
        self.processes = [process for *_, process in facts]
        self.cores = sum(here for _, _, here, _ in facts)

    def oversubscribed(self) -> bool:
        """Return whether this node has fewer cores than ranks."""
        return self.cores_share < ALONE

    def cores_per_rank(self) -> int:
        """Return the number of cores that this rank may keep busy, at least one."""
        return cores.threads_in(self.cores_share)

    def bcast(self, value: Any, waiter: Waiter) -> Any:
        """Return the root's object on every rank. All ranks call it; pickled, for use between rounds only."""
        payload = np.frombuffer(MPI.pickle.dumps(value), np.uint8).copy() if self.rank == 0 else None
        length = np.array([0 if payload is None else payload.size], np.int64)
        self._wait(self.comm.Ibcast(length), waiter, "the root's announcement")
        if payload is None:
            payload = np.empty(int(length[0]), np.uint8)
        self._wait(self.comm.Ibcast(payload), waiter, "the root's announcement")
        return MPI.pickle.loads(payload.tobytes())

    def barrier(self, waiter: Waiter, description: str) -> None:
        """Return once every rank has called this."""
        self._wait(self.comm.Ibarrier(), waiter, description)

    @staticmethod
    def _wait(request: MPI.Request, waiter: Waiter, description: str) -> None:
        waiter.until(request.Test, lambda: description)

    def split_group(self, place: tuple[int, int] | None, waiter: Waiter) -> GroupChannel | None:
        """Create the sub-communicator of a player for the ranks with a ``place`` (index of the player, worker).

        All ranks call it, once per round.
        """
        self.barrier(waiter, "all ranks at the start of the round")  # behind it the split cannot wait for any rank
        color, worker = (MPI.UNDEFINED, 0) if place is None else place
        comm = self.comm.Split(color, key=worker)
        if comm == MPI.COMM_NULL:
            return None
        self._groups = [comm]
        return GroupChannel(comm, waiter)

    # Recovery after the death of a rank ---------------------------------------------------------------------------

    def make_progress(self) -> None:
        """Let MPI progress sends and receives, and detect deaths, which it does only during a call."""
        self.mail.Iprobe(MPI.ANY_SOURCE, NOTHING)  # if a message is pending, MPI may stop there

    def check(self) -> None:
        """Make progress, and raise if another rank has detected a death.

        Raises:
          RankLostError: a rank has died.
        """
        self.make_progress()
        if self.comm.Is_revoked():
            raise RankLostError("another rank has died")

    def means_loss(self, error: BaseException) -> bool:
        """Return whether an error means that a rank has died, found here or, by a revoked communicator, elsewhere."""
        if not isinstance(error, MPI.Exception):
            return isinstance(error, RankLostError)
        if error.Get_error_class() in _LOSSES:
            return True
        # Of several requests one has failed, and mpi4py reports no reason; or a collective could not send to the dead
        # rank, which Open MPI reports as another error. The notice of the death may still be on its way.
        until = time.monotonic() + REVOKED_WITHIN
        while not (lost := self.comm.Is_revoked() or self.comm.Get_failed().size > 0) and time.monotonic() < until:
            time.sleep(0.001)
            with contextlib.suppress(MPI.Exception):
                self.make_progress()
        return lost

    def revocable(self, waiter: Waiter) -> bool:
        """Return whether a communicator revoked by the root is revoked on every rank. All ranks call it."""
        trial = self.comm.Dup()
        answer = np.zeros(1, np.int64)
        self.barrier(waiter, "all ranks, to try out fault tolerance")
        try:
            if self.rank == 0:
                trial.Revoke()
            until = time.monotonic() + REVOKED_WITHIN
            while not trial.Is_revoked() and time.monotonic() < until:
                self.make_progress()  # a rank polls while it waits
                time.sleep(0.001)
            answer[0] = trial.Is_revoked()
        except (MPI.Exception, NotImplementedError):
            answer[0] = 0
        self._wait(self.comm.Iallreduce(MPI.IN_PLACE, answer, MPI.MIN), waiter, "all ranks' word on fault tolerance")
        return bool(answer[0])

    def revoke(self) -> None:
        """Revoke every communicator, so that no rank waits for a dead one, or for one that has detected the death."""
        for comm in (self.comm, self.steps, self.mail, *self._groups):
            if comm != MPI.COMM_NULL:  # a group that was closed before the next round
                comm.Revoke()
        self._groups = []

    def shrink(self, waiter: Waiter) -> None:
        """Replace every communicator by one of the survivors only. All survivors call it.

        Their ranks close up in the old order. Pending messages are lost.

        Raises:
          Exception: another rank has died meanwhile (see ``means_loss``); call it again.
        """
        self.revoke()
        # Open MPI 5.0 has Ishrink, which fails; so this blocks in MPI, and a thread watches the clock.
        with waiter.watching("all ranks that are left"):
            self._take_over(self.comm.Shrink())

    def _take_over(self, survivors: MPI.Comm) -> None:
        """Record the survivors, and set up their communicators."""
        old = self.comm
        places = MPI.Group.Translate_ranks(survivors.Get_group(), None, old.Get_group())
        origins = [self.origins[place] for place in places]
        self.dead += [origin for origin in self.origins if origin not in origins]
        self.origins = origins
        if 0 in self.dead:  # the root is dead: every rank leaves without waiting for another message
            self.comm, self.rank, self.size = survivors, survivors.rank, survivors.size
            return
        self._set_up(survivors)

    def abort(self, code: int) -> None:
        """Abort the whole job; if MPI waits for dead ranks meanwhile, end this process all the same."""
        unable = threading.Timer(ABORTED_WITHIN, os._exit, (code,))
        unable.daemon = True
        unable.start()
        MPI.COMM_WORLD.Abort(code)

    def close(self) -> None:
        """Free the communicators, as the last value before the process ends. All ranks call it."""
        for comm in (self.mail, self.steps, self.comm):
            comm.Free()
        relax_timer_slack()
