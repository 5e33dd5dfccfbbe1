"""The only module that speaks MPI: the world, the mailbox to the root, the channels of a match, and groups.

Each kind of traffic has a communicator of its own, so that no message can be taken for another. Every wait is
bounded (``arena.waiting``). Collectives are entered through a rendezvous, a small non-blocking reduction: once it
has completed, all members are at the same place and the collective itself cannot hang.
"""

import bisect
import contextlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import mpi4py
import numpy as np

from arena import cores
from arena.errors import MatchOver, RankLostError
from arena.waiting import Waiter, patient_sleeps, patiently
from arena.wire import ActionMessage, Block, Record, make_record

# Open MPI gives the core away while it waits only where it knows that ranks share cores. It does not know where a
# scheduler counts more cores than there are, and then every collective costs a time slice of each rank.
os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
# Only the main thread of a rank speaks MPI; asking for no more keeps locks out of the step path.
mpi4py.rc.thread_level = "funneled"
with patiently():
    from mpi4py import MPI

REVOKED_WITHIN = 5.0
"""Seconds in which a rank learns what another one has taken back, where fault tolerance is more than a name."""

_LOSSES = {MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED}
_MAIL, _DIRECT = 1, 2
# Tags of a seat's four streams, per batch.
_ACTIONS, _RECORD, _ACTIONS_SIDE, _RECORD_SIDE, _STREAMS = 0, 1, 2, 3, 4


class World:
    """All ranks of the run.

    Attributes:
      rank, size: of this process among all.
      host: this machine's name.
      nodes: the node number of each rank; ranks that share memory share a node.
      hosts: the name of each rank's node: the scheduler's name for it, else the machine's.
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
        self.cores_share = cores.shares(shared.allgather(cores.given()))[shared.rank]
        shared.Free()
        facts = self.comm.allgather((leader, self.host))
        number: dict[int, int] = {}
        self.nodes = [number.setdefault(leader, len(number)) for leader, _ in facts]
        self.hosts = [host for _, host in facts]

    def oversubscribed(self) -> bool:
        """Whether this node has fewer cores for this rank and its neighbours than they are."""
        return self.cores_share < 0.999

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

    def split_group(self, place: tuple[int, int] | None, waiter: Waiter) -> "GroupChannel | None":
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

    def check(self) -> None:
        """Raise where another rank has found out that one has died.

        Raises:
          RankLostError: it has.
        """
        if self.comm.Is_revoked():
            raise RankLostError("another rank has died")

    def means_loss(self, error: BaseException) -> bool:
        """Whether an error says that a rank has died, here or, by what they took back, in the eyes of others."""
        if not isinstance(error, MPI.Exception):
            return isinstance(error, RankLostError)
        if error.Get_error_class() != MPI.ERR_IN_STATUS:
            return error.Get_error_class() in _LOSSES
        # Of several requests one has failed, and mpi4py does not say of what; the news of a death may be under way.
        until = time.monotonic() + REVOKED_WITHIN
        while not (lost := self.comm.Is_revoked() or self.comm.Get_failed().size > 0) and time.monotonic() < until:
            time.sleep(0.001)
            with contextlib.suppress(MPI.Exception):
                self.mail.Iprobe(MPI.ANY_SOURCE, _DIRECT)
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
                self.mail.Iprobe(MPI.ANY_SOURCE, _DIRECT)  # what has come is looked at by whoever asks for something
                time.sleep(0.001)
            answer[0] = trial.Is_revoked()
        except (MPI.Exception, NotImplementedError):
            answer[0] = 0
        self._wait(self.comm.Iallreduce(MPI.IN_PLACE, answer, MPI.MIN), waiter, "all ranks' word on fault tolerance")
        return bool(answer[0])

    def revoke(self) -> None:
        """Take back every communicator, so that nobody waits for a dead rank, or for one that knows of it."""
        for comm in (self.comm, self.steps, self.mail, *self._groups):
            comm.Revoke()
        self._groups = []

    def shrink(self, waiter: Waiter) -> None:
        """Leave the dead behind: take back every communicator, and set up new ones. All survivors call it.

        Their ranks close up in the old order. Messages under way are lost.

        Raises:
          Exception: another rank has died meanwhile (``means_loss`` says so); call it again.
        """
        old = self.comm
        self.revoke()
        # Open MPI 5.0 has Ishrink, which fails; so this waits in MPI, and a thread looks at the clock.
        with waiter.watching("all ranks that are left"):
            survivors = old.Shrink()
        places = MPI.Group.Translate_ranks(survivors.Get_group(), None, old.Get_group())
        origins = [self.origins[place] for place in places]
        self.dead += [origin for origin in self.origins if origin not in origins]
        self.origins = origins
        self._settle(survivors)

    def abort(self, code: int) -> None:
        """End the whole job at once."""
        MPI.COMM_WORLD.Abort(code)

    def close(self) -> None:
        """Give the communicators back, as the last thing before the process ends. All ranks call it."""
        for comm in (self.mail, self.steps, self.comm):
            comm.Free()
        patient_sleeps()


def _take(comm: MPI.Comm, source: int, tag: int, waiter: Waiter, what: str) -> Any:
    """Return the next pickled message of a rank, however large, without ever blocking in MPI."""
    name = f"{what} from rank {source}"
    arriving: list[MPI.Message] = []

    def begins() -> bool:
        message = comm.improbe(source, tag)
        arriving.extend([] if message is None else [message])
        return message is not None

    if not begins():
        waiter.until(begins, lambda: name)
    request = arriving[0].irecv()
    arrived: list[Any] = []

    def ends() -> bool:
        done, thing = request.test()
        arrived.extend([thing] if done else [])
        return done

    if not ends():
        waiter.until(ends, lambda: name)
    return arrived[0]


class Mailbox:
    """Small pickled messages between the root and the others, off the step path."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._under_way: list[MPI.Request] = []

    def post(self, rank: int, message: Any) -> None:
        """Send without waiting."""
        self._under_way = [request for request in self._under_way if not request.Test()]
        self._under_way.append(self._world.mail.isend(message, rank, _MAIL))

    def poll(self) -> tuple[int, Any] | None:
        """Return (sender, message) for the next message that has arrived, or None."""
        status = MPI.Status()
        message = self._world.mail.improbe(MPI.ANY_SOURCE, _MAIL, status)
        return None if message is None else (status.Get_source(), message.recv())

    def hand(self, rank: int, thing: Any) -> None:
        """Send to a rank that will ask for it with ``take``."""
        self._under_way.append(self._world.mail.isend(thing, rank, _DIRECT))

    def take(self, rank: int, waiter: Waiter, what: str) -> Any:
        """Return what ``rank`` hands over."""
        return _take(self._world.mail, rank, _DIRECT, waiter, what)

    def flush(self, waiter: Waiter) -> None:
        """Wait until everything that was sent is under way for good."""
        for request in self._under_way:
            waiter.until(request.Test, lambda: "messages to leave")
        self._under_way = []

    def forget(self) -> None:
        """Give up on what was sent: the world that it was sent in is gone."""
        self._under_way = []


class SeatChannel:
    """The worker's end of its seat: for each batch one message out and one record in, over persistent requests."""

    def __init__(
        self, world: World, environment_rank: int, blocks: Sequence[Block], batch_copies: Sequence[int], waiter: Waiter
    ) -> None:
        self.batches = len(batch_copies)
        self.messages = [ActionMessage(blocks, copies) for copies in batch_copies]
        self.records: list[Record] = [make_record(blocks, copies) for copies in batch_copies]
        self._comm, self._peer, self._waiter = world.steps, environment_rank, waiter
        self._sends = [
            self._comm.Send_init(message.buffer, environment_rank, _STREAMS * b + _ACTIONS)
            for b, message in enumerate(self.messages)
        ]
        self._receives = [
            self._comm.Recv_init(record.buffer, environment_rank, _STREAMS * b + _RECORD)
            for b, record in enumerate(self.records)
        ]
        self._sides: list[MPI.Request] = []
        self._tests = [request.Test for request in self._receives]
        self._what = lambda: f"the environment process (rank {environment_rank})"

    def send(self, batch: int, command: int = 0, side: Any = None) -> None:
        """Send the batch's actions, or a reset with ``side`` (pickled) beside it, and get ready for the answer."""
        if self._sides:
            self._sides = [request for request in self._sides if not request.Test()]
        header = self.messages[batch].header
        header[0] = command
        header[1] = 0
        if side is not None:
            header[1] = 1
            self._sides.append(self._comm.isend(side, self._peer, _STREAMS * batch + _ACTIONS_SIDE))
        self._receives[batch].Start()
        self._sends[batch].Start()

    def receive(self, batch: int) -> Record:
        """Return the batch's record; it is valid until the next ``send`` of the batch."""
        if not self._tests[batch]():
            self._waiter.until(self._tests[batch], self._what)
        self._sends[batch].Wait()
        return self.records[batch]

    def receive_side(self, batch: int) -> Any:
        """Return what came beside the batch's record (its header said so)."""
        return _take(self._comm, self._peer, _STREAMS * batch + _RECORD_SIDE, self._waiter, "infos")

    def close(self) -> None:
        """Free the requests."""
        for side in self._sides:
            self._waiter.until(side.Test, lambda: "the last side messages to leave")
        for request in (*self._sends, *self._receives):
            request.Free()


class MatchChannel:
    """The environment process's end of a match: for each batch, all seats' messages in and their records out."""

    def __init__(
        self,
        world: World,
        worker_ranks: Sequence[int],
        seat_blocks: Sequence[Sequence[Block]],
        batch_copies: Sequence[int],
        waiter: Waiter,
        *,
        in_turn: bool = False,
    ) -> None:
        """Get ready for the seats' messages; ``in_turn`` takes batches in their order, not as they come."""
        self._comm, self._workers, self._waiter = world.steps, tuple(worker_ranks), waiter
        self._in_turn = in_turn
        self.messages = [[ActionMessage(blocks, n) for blocks in seat_blocks] for n in batch_copies]
        self.records = [[make_record(blocks, n) for blocks in seat_blocks] for n in batch_copies]
        self._receives = [
            [
                self._comm.Recv_init(message.buffer, rank, _STREAMS * b + _ACTIONS)
                for rank, message in zip(worker_ranks, messages, strict=True)
            ]
            for b, messages in enumerate(self.messages)
        ]
        self._sends = [
            [
                self._comm.Send_init(record.buffer, rank, _STREAMS * b + _RECORD)
                for rank, record in zip(worker_ranks, records, strict=True)
            ]
            for b, records in enumerate(self.records)
        ]
        self._open = list(range(len(batch_copies)))
        self._held: set[int] = set()
        self._next = self._ready_batch = 0
        self._sides: list[MPI.Request] = []
        for receives in self._receives:
            MPI.Prequest.Startall(receives)

    def ready(self, batch: int) -> bool:
        """Whether every seat has sent its message for this batch."""
        receives = self._receives[batch]
        return receives[0].Test() if len(receives) == 1 else MPI.Request.Testall(receives)

    def missing(self) -> str:
        """Name the workers that have not sent what the match waits for."""
        late = sorted(
            {rank for b in self._open for rank, r in zip(self._workers, self._receives[b], strict=True) if not r.Test()}
        )
        return f"actions from worker ranks {late}"

    def wait_any(self) -> int:
        """Return a batch for which every seat has sent; batches that are ready take turns."""
        found = self._find_ready()
        if found is None:
            self._waiter.until(self._remember_ready, self.missing)
            found = self._ready_batch
        return self._accept(found)

    def find_ready(self) -> int | None:
        """Return such a batch where there is one now."""
        found = self._find_ready()
        return None if found is None else self._accept(found)

    def hold(self, batch: int) -> None:
        """Leave a batch out of what is looked for, until ``release``: it is being answered."""
        self._open.remove(batch)
        self._held.add(batch)

    def release(self, batch: int) -> None:
        """Take a batch back that was held."""
        self._held.remove(batch)
        bisect.insort(self._open, batch)

    def holds_all(self) -> bool:
        """Whether no batch is left to look for."""
        return not self._open

    def _accept(self, batch: int) -> int:
        self._next = self._open.index(batch) + 1
        MPI.Request.Waitall(self._sends[batch])
        return batch

    def wait(self, batch: int, seat: int) -> None:
        """Return once this seat has sent its message for this batch."""
        self._waiter.until(self._receives[batch][seat].Test, self.missing)
        self._sends[batch][seat].Wait()

    def _find_ready(self) -> int | None:
        count = len(self._open)
        for i in range(1 if self._in_turn else count):
            batch = self._open[(self._next + i) % count]
            if self.ready(batch):
                return batch
        return None

    def _remember_ready(self) -> bool:
        found = self._find_ready()
        if found is None:
            return False
        self._ready_batch = found
        return True

    def take_side(self, batch: int, seat: int) -> Any:
        """Return what a worker sent beside its message (its header said so)."""
        tag = _STREAMS * batch + _ACTIONS_SIDE
        return _take(self._comm, self._workers[seat], tag, self._waiter, "what goes with a reset")

    def put_side(self, batch: int, seat: int, side: Any) -> None:
        """Send something beside the next record of a seat; its header must say so."""
        self._sides = [request for request in self._sides if not request.Test()]
        self._sides.append(self._comm.isend(side, self._workers[seat], _STREAMS * batch + _RECORD_SIDE))

    def send(self, batch: int) -> None:
        """Send every seat its record of this batch, and get ready for their next messages."""
        receives, sends = self._receives[batch], self._sends[batch]
        if len(sends) == 1:
            receives[0].Start()
            sends[0].Start()
        else:
            MPI.Prequest.Startall(receives)
            MPI.Prequest.Startall(sends)

    def send_to(self, batch: int, seat: int) -> None:
        """Send one seat its record of this batch, and get ready for its next message."""
        self._receives[batch][seat].Start()
        self._sends[batch][seat].Start()

    def send_last(self, batch: int) -> bool:
        """Send every seat the last record of this batch; return whether batches are still open."""
        MPI.Prequest.Startall(self._sends[batch])
        self._open.remove(batch)
        return bool(self._open or self._held)

    def close(self) -> None:
        """Wait until the last records have left and free the requests."""
        for batch, (sends, receives) in enumerate(zip(self._sends, self._receives, strict=True)):
            self._waiter.until(partial(MPI.Request.Testall, sends), lambda: "the last records to leave")
            for receive in receives if batch in self._open else ():
                receive.Cancel()
                receive.Wait()
            for request in (*sends, *receives):
                request.Free()
        for side in self._sides:
            self._waiter.until(side.Test, lambda: "the last side messages to leave")


class _Meeting(NamedTuple):
    """What the members of a group agreed on at a rendezvous."""

    operation: int
    length: int
    leaving: bool
    active: bool


_NOTHING = np.iinfo(np.int64).min
# The operations that members can meet for.
_SUM32, _SUM64, _BROADCAST, _LEAVE = 1, 2, 3, 4
_NAMES = {_SUM32: "a sum of float32", _SUM64: "a sum of float64", _BROADCAST: "a broadcast", _LEAVE: "leaving"}


class GroupChannel:
    """All workers of one player and their sub-communicator.

    Members are *active* (their policy runs), *finished* (``run`` returned; they take part with zeros while they keep
    playing) or *leaving* (their match is over). Whoever meets a leaving member gets MatchOver.
    """

    def __init__(self, comm: MPI.Comm, waiter: Waiter) -> None:
        self._comm, self._waiter = comm, waiter
        self.rank, self.size = comm.rank, comm.size
        self._mine = np.empty(7, np.int64)
        self._theirs = np.empty(7, np.int64)
        self._pending: MPI.Request | None = None

    # The rendezvous -------------------------------------------------------------------------------------------

    def _announce(self, operation: int | None, length: int, leaving: bool) -> MPI.Request:
        if operation is None:
            self._mine[:4] = _NOTHING
        else:
            self._mine[:4] = (operation, -operation, length, -length)
        self._mine[4:] = (leaving, -leaving, operation is not None)
        return self._comm.Iallreduce(self._mine, self._theirs, MPI.MAX)

    def _read(self) -> _Meeting:
        operation, minus_operation, length, minus_length, leaving, _, active = self._theirs.tolist()
        if active and not leaving and (operation != -minus_operation or length != -minus_length):
            raise RuntimeError(
                "the workers of this group called different collectives at the same time: "
                f"{_NAMES[-minus_operation]} of {-minus_length} items, and {_NAMES[operation]} of {length} items; "
                "every worker of a player must make the same calls of `group` in the same order"
            )
        return _Meeting(operation, length, bool(leaving), bool(active))

    def _meet(self, operation: int, length: int) -> None:
        request = self._announce(operation, length, leaving=False)
        self._waiter.until(request.Test, lambda: f"the other {self.size - 1} workers of this group")
        if self._read().leaving:
            raise MatchOver

    # What members do together -----------------------------------------------------------------------------------

    def sum_in_place(self, array: np.ndarray) -> None:
        """Replace a contiguous float32 or float64 array by its sum over the group; all members get the same bits."""
        if self.size == 1:
            return
        self._meet(_SUM32 if array.dtype == np.float32 else _SUM64, array.size)
        self._comm.Allreduce(MPI.IN_PLACE, array)

    def broadcast_in_place(self, array: np.ndarray) -> None:
        """Replace a contiguous array by that of the first member, which must be active."""
        if self.size == 1:
            return
        self._meet(_BROADCAST, array.nbytes)
        self._comm.Bcast(array.view(np.uint8).reshape(-1))

    # Finishing and leaving ----------------------------------------------------------------------------------------

    def serve(self) -> None:
        """As a finished member, take part with zeros in whatever the active members do; returns at once.

        Raises:
          RuntimeError: the others wait for a broadcast that this member would have to send.
        """
        if self.size == 1:
            return
        if self._pending is None:
            self._pending = self._announce(None, 0, leaving=False)
        if self._pending.Test():
            self._pending = None
            meeting = self._read()
            if meeting.active and not meeting.leaving:
                self._take_part(meeting)

    def _take_part(self, meeting: _Meeting) -> None:
        if meeting.operation == _BROADCAST:
            if self.rank == 0:
                raise RuntimeError("a worker called group.broadcast after `run` had returned in the group's worker 0")
            self._comm.Bcast(np.empty(meeting.length, np.uint8))
        else:
            dtype = np.float32 if meeting.operation == _SUM32 else np.float64
            self._comm.Allreduce(MPI.IN_PLACE, np.zeros(meeting.length, dtype))

    def leave(self) -> None:
        """Return once every member is leaving. Active members learn of it by MatchOver at their next collective."""
        if self.size == 1:
            return
        what: Callable[[], str] = lambda: f"the other {self.size - 1} workers of this group to leave"  # noqa: E731
        if self._pending is not None:
            self._waiter.until(self._pending.Test, what)
            self._pending = None
            meeting = self._read()
            if meeting.active and not meeting.leaving:
                self._take_part(meeting)
        together = False
        while not together:
            request = self._announce(_LEAVE, 0, leaving=True)
            self._waiter.until(request.Test, what)
            together = self._theirs[5] == -1  # the largest -leaving: -1 if all are

    def share(self, thing: Any) -> Any:
        """Give every member what the first one has; pickled, for use at the start of a round only."""
        payload = np.frombuffer(MPI.pickle.dumps(thing), np.uint8).copy()
        length = np.array([payload.size], np.int64)
        self.broadcast_in_place(length)
        if self.rank != 0:
            payload = np.empty(int(length[0]), np.uint8)
        self.broadcast_in_place(payload)
        return MPI.pickle.loads(payload.tobytes())

    def close(self) -> None:
        """Give the communicator back. All members call it."""
        self._comm.Free()
