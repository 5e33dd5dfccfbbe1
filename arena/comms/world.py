"""All ranks: who is there, where they are, and who is left when some have died."""

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
"""Seconds in which a rank learns what another one has taken back, where fault tolerance is more than a name."""

ABORTED_WITHIN = 5.0
"""Seconds in which MPI ends the job, where it can."""

_LOSSES = {MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED}
MAIL, DIRECT, ANSWER, NOTHING = 1, 2, 3, 4
"""Tags of messages that their receiver looks for, of those that it waits for, and of none."""

TAGS = 4
"""What is added to them for each further seat that one rank has."""


class World:
    """All ranks of the run.

    Attributes:
      rank, size: of this process among all.
      host: this machine's name.
      nodes: the node number of each rank; ranks that share memory share a node.
      hosts: the name of each rank's node: the scheduler's name for it, else the machine's.
      cores_here: the cores of each rank of this rank's node.
      cores_share: how many cores this rank has to itself; below 1 where ranks share them.
      origins: the number that each rank had at the start: after a death those behind it move up.
      dead: the numbers, at the start, of the ranks that have died.
    """

    def __init__(self) -> None:
        self.host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.origins = list(range(MPI.COMM_WORLD.size))
        self.dead: list[int] = []
        self._groups: list[MPI.Comm] = []
        self._settle(MPI.COMM_WORLD.Dup())

    def _settle(self, comm: MPI.Comm) -> None:
        """Find out who is there, and where. All ranks call it."""
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size
        self.steps, self.mail = comm.Dup(), comm.Dup()
        shared = self.comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)
        leader = shared.bcast(self.rank)
        self.cores_here = dict(shared.allgather((self.rank, cores.given())))
        resting = [0] if leader == 0 else []  # the root rests most of the time
        self.cores_share = cores.shares(list(self.cores_here.values()), resting)[shared.rank]
        shared.Free()
        facts = self.comm.allgather((leader, self.host))
        number: dict[int, int] = {}
        self.nodes = [number.setdefault(leader, len(number)) for leader, _ in facts]
        self.hosts = [host for _, host in facts]

    def oversubscribed(self) -> bool:
        """Whether this node has fewer cores for this rank and its neighbours than they are."""
        return self.cores_share < ALONE

    def cores_per_rank(self) -> int:
        """Return how many cores this rank may keep busy, at least one."""
        return cores.whole(self.cores_share)

    def share(self, thing: Any, waiter: Waiter) -> Any:
        """Give every rank what the root has. All ranks call it; pickled, for use between rounds only."""
        payload = np.frombuffer(MPI.pickle.dumps(thing), np.uint8).copy() if self.rank == 0 else None
        length = np.array([0 if payload is None else payload.size], np.int64)
        self._wait(self.comm.Ibcast(length), waiter, "the root's announcement")
        if payload is None:
            payload = np.empty(int(length[0]), np.uint8)
        self._wait(self.comm.Ibcast(payload), waiter, "the root's announcement")
        return MPI.pickle.loads(payload.tobytes())

    def meet(self, waiter: Waiter, what: str) -> None:
        """Return once every rank has called this."""
        self._wait(self.comm.Ibarrier(), waiter, what)

    @staticmethod
    def _wait(request: MPI.Request, waiter: Waiter, what: str) -> None:
        waiter.until(request.Test, lambda: what)

    def split_group(self, place: tuple[int, int] | None, waiter: Waiter) -> GroupChannel | None:
        """Join the sub-communicator of a player at ``place`` = (number of the player, worker), or of nobody.

        All ranks call it, once per round.
        """
        self.meet(waiter, "all ranks at the start of the round")  # behind it the split cannot wait for anybody
        color, worker = (MPI.UNDEFINED, 0) if place is None else place
        comm = self.comm.Split(color, key=worker)
        if comm == MPI.COMM_NULL:
            return None
        self._groups = [comm]
        return GroupChannel(comm, waiter)

    # Going on without a rank ------------------------------------------------------------------------------------

    def make_progress(self) -> None:
        """Let MPI do what it can do only while it is asked for something: send, receive, notice who has died."""
        self.mail.Iprobe(MPI.ANY_SOURCE, NOTHING)  # where there is something, MPI may leave it at that

    def check(self) -> None:
        """Do the same, and raise where another rank has found out that one has died.

        Raises:
          RankLostError: it has.
        """
        self.make_progress()
        if self.comm.Is_revoked():
            raise RankLostError("another rank has died")

    def means_loss(self, error: BaseException) -> bool:
        """Whether an error says that a rank has died, here or, by what they took back, in the eyes of others."""
        if not isinstance(error, MPI.Exception):
            return isinstance(error, RankLostError)
        if error.Get_error_class() in _LOSSES:
            return True
        # Of several requests one has failed, and mpi4py does not say of what; or a collective could not send to the
        # dead, which Open MPI calls another error. The news of the death may be under way.
        until = time.monotonic() + REVOKED_WITHIN
        while not (lost := self.comm.Is_revoked() or self.comm.Get_failed().size > 0) and time.monotonic() < until:
            time.sleep(0.001)
            with contextlib.suppress(MPI.Exception):
                self.make_progress()
        return lost

    def revocable(self, waiter: Waiter) -> bool:
        """Return whether what the root takes back is taken back everywhere. All ranks call it."""
        trial = self.comm.Dup()
        answer = np.zeros(1, np.int64)
        self.meet(waiter, "all ranks, to try out fault tolerance")
        try:
            if self.rank == 0:
                trial.Revoke()
            until = time.monotonic() + REVOKED_WITHIN
            while not trial.Is_revoked() and time.monotonic() < until:
                self.make_progress()  # a rank that asks for something looks at what has come
                time.sleep(0.001)
            answer[0] = trial.Is_revoked()
        except (MPI.Exception, NotImplementedError):
            answer[0] = 0
        self._wait(self.comm.Iallreduce(MPI.IN_PLACE, answer, MPI.MIN), waiter, "all ranks' word on fault tolerance")
        return bool(answer[0])

    def revoke(self) -> None:
        """Take back every communicator, so that nobody waits for a dead rank, or for one that knows of it."""
        for comm in (self.comm, self.steps, self.mail, *self._groups):
            if comm != MPI.COMM_NULL:  # a group that was closed before the next round
                comm.Revoke()
        self._groups = []

    def shrink(self, waiter: Waiter) -> None:
        """Leave the dead behind: take back every communicator, and set up new ones. All survivors call it.

        Their ranks close up in the old order. Messages under way are lost.

        Raises:
          Exception: another rank has died meanwhile (``means_loss`` says so); call it again.
        """
        self.revoke()
        # Open MPI 5.0 has Ishrink, which fails; so this waits in MPI, and a thread looks at the clock.
        with waiter.watching("all ranks that are left"):
            self._take_over(self.comm.Shrink())

    def _take_over(self, survivors: MPI.Comm) -> None:
        """Know who is left, and set up their communicators."""
        old = self.comm
        places = MPI.Group.Translate_ranks(survivors.Get_group(), None, old.Get_group())
        origins = [self.origins[place] for place in places]
        self.dead += [origin for origin in self.origins if origin not in origins]
        self.origins = origins
        if 0 in self.dead:  # nobody goes on: everybody leaves without another word to wait for
            self.comm, self.rank, self.size = survivors, survivors.rank, survivors.size
            return
        self._settle(survivors)

    def abort(self, code: int) -> None:
        """End the whole job at once; where MPI waits for the dead meanwhile, this process ends all the same."""
        unable = threading.Timer(ABORTED_WITHIN, os._exit, (code,))
        unable.daemon = True
        unable.start()
        MPI.COMM_WORLD.Abort(code)

    def close(self) -> None:
        """Give the communicators back, as the last thing before the process ends. All ranks call it."""
        for comm in (self.mail, self.steps, self.comm):
            comm.Free()
        relax_timer_slack()
