"""What carries actions from the seats of a match to its environment process, and records back."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from arena.comms.bells import SOON, SeatBells, Turn
from arena.comms.mpi import MPI, stir, take
from arena.comms.world import World
from arena.waiting import Waiter
from arena.wire import STEP, ActionMessage, Block, Record, make_record

# Tags of a seat's four streams, per batch.
_ACTIONS, _RECORD, _ACTIONS_SIDE, _RECORD_SIDE, _STREAMS = 0, 1, 2, 3, 4

_AT_ONCE = 4000
"""Bytes that MPI hands to a rank of the same machine at once; for more it may need the sender's help."""


class SeatChannel:
    """The worker's end of its seat: for each batch one message out and one record in, over persistent requests."""

    def __init__(
        self,
        world: World,
        environment_rank: int,
        blocks: Sequence[Block],
        batch_copies: Sequence[int],
        waiter: Waiter,
        bells: SeatBells | None = None,
    ) -> None:
        """Get ready for both directions; with ``bells`` the ends wake each other."""
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
        self._bells = bells
        self._stays = bells is not None and any(message.buffer.nbytes > _AT_ONCE for message in self.messages)

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
        # The message first: whatever else is to be done, the other end works meanwhile. Whether it has left is not
        # asked: often it has not, and then MPI gives the core away.
        self._sends[batch].Start()
        self._receives[batch].Start()
        if self._bells is not None:
            self._bells.environment.ring()

    def receive(self, batch: int) -> Record:
        """Return the batch's record; it is valid until the next ``send`` of the batch."""
        if self._bells is not None:
            self._let_leave(batch)
            self._waiter.until_rung(self._rung, self._what)
        if not self._tests[batch]():
            self._waiter.until(self._tests[batch], self._what)
        self._sends[batch].Wait()  # it has left: this is the answer
        return self.records[batch]

    def _let_leave(self, batch: int) -> None:
        """Wait for what has to leave before this rank sleeps."""
        if self._stays:
            self._waiter.until(self._sends[batch].Test, self._what)
        if self._sides:
            self._waiter.until(partial(MPI.Request.Testall, self._sides), self._what)
            self._sides = []

    def _rung(self) -> bool:
        assert self._bells is not None
        return self._bells.worker.rung() or stir(self._comm)

    def receive_side(self, batch: int) -> Any:
        """Return what came beside the batch's record (its header said so)."""
        return take(self._comm, self._peer, _STREAMS * batch + _RECORD_SIDE, self._waiter, "infos")

    def close(self) -> None:
        """Free the requests."""
        for side in self._sides:
            self._waiter.until(side.Test, lambda: "the last side messages to leave")
        for request in (*self._sends, *self._receives):
            request.Free()
        if self._bells is not None:
            self._bells.close()


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
        bells: Sequence[SeatBells] = (),
        turn: Turn | None = None,
    ) -> None:
        """Get ready for the seats' messages.

        Args:
          world: all ranks.
          worker_ranks: of the seats.
          seat_blocks: of each seat.
          batch_copies: of each batch.
          waiter: how this rank waits.
          in_turn: whether to take batches in their order, not as they come.
          bells: of the seats, where the ends wake each other: one batch, or several in turn.
          turn: where matches share the core.
        """
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
        self._tests = [_test(receives) for receives in self._receives]
        self._headers = [[message.header for message in messages] for messages in self.messages]
        self._open = list(range(len(batch_copies)))  # whose turn is next comes first
        self._held: set[int] = set()
        self._found = 0
        self._sides: list[MPI.Request] = []
        self._bells = tuple(bells)
        self._turn = turn
        self._rung = [partial(self._sleep, each.environment.rung) for each in bells]
        self._rings = [each.worker.ring for each in bells]
        self._stay: list[MPI.Request] = []  # records that may not have left when this rank falls asleep
        if bells and any(record.buffer.nbytes > _AT_ONCE for records in self.records for record in records):
            self._stay = [send for sends in self._sends for send in sends]
        for receives in self._receives:
            MPI.Prequest.Startall(receives)

    def asked(self, batch: int) -> list[int]:
        """Return what each seat asks for in its message of this batch; an empty list where all ask for a step."""
        for header in self._headers[batch]:
            if header[0] != STEP:
                return [header[0] for header in self._headers[batch]]
        return []

    def missing(self) -> str:
        """Name the workers that have not sent what the match waits for."""
        late = sorted(
            {rank for b in self._open for rank, r in zip(self._workers, self._receives[b], strict=True) if not r.Test()}
        )
        return f"actions from worker ranks {late}"

    def wait_any(self) -> int:
        """Return a batch for which every seat has sent; batches that are ready take turns."""
        if self._bells:
            self._await_rings(self._open[0])
        elif not self._find():
            self._waiter.until(self._find, self.missing)
        return self._accept()

    def _await_rings(self, batch: int) -> None:
        """Sleep until every seat has rung once, and until it is this match's turn."""
        self._let_leave()
        for seat in reversed(range(len(self._bells))):  # the last to be woken is the last to answer, as a rule
            self._await_ring(seat)
        if not self._tests[batch]():
            self._waiter.until(self._tests[batch], self.missing)
        self._found = batch
        if self._turn is not None:
            self._turn.give_if_over()
            if not self._turn.held:
                self._waiter.until_rung(partial(self._sleep, self._turn.take), lambda: "its turn on its core")

    def _await_ring(self, seat: int) -> None:
        """Sleep until a seat has rung; its message is there then, or nearly so."""
        if self._turn is not None and self._turn.held:
            if self._bells[seat].environment.rung(SOON):
                return
            self._turn.give()
        self._waiter.until_rung(self._rung[seat], self.missing)

    def _let_leave(self) -> None:
        """Wait for what has to leave before this rank sleeps; whom it goes to may wait for the next match meanwhile."""
        if not (self._stay or self._sides):
            return
        leaving = [*self._stay, *self._sides]
        if not MPI.Request.Testall(leaving):
            if self._turn is not None:
                self._turn.give()
            self._waiter.until(partial(MPI.Request.Testall, leaving), self.missing)
        self._sides = []

    def _sleep(self, rung: Callable[[], bool]) -> bool:
        return rung() or stir(self._comm)

    def find_ready(self) -> int | None:
        """Return such a batch where there is one now."""
        return self._accept() if self._find() else None

    def hold(self, batch: int) -> None:
        """Leave a batch out of what is looked for, until ``release``: it is being answered."""
        self._open.remove(batch)
        self._held.add(batch)

    def release(self, batch: int) -> None:
        """Take a batch back that was held."""
        self._held.remove(batch)
        self._open.append(batch)

    def holds_all(self) -> bool:
        """Whether no batch is left to look for."""
        return not self._open

    def _find(self) -> bool:
        for batch in self._open:
            if self._tests[batch]():
                self._found = batch
                return True
            if self._in_turn:
                break
        return False

    def _accept(self) -> int:
        batch = self._found
        if self._open[-1] != batch:
            self._open.remove(batch)
            self._open.append(batch)
        sends = self._sends[batch]
        if len(sends) == 1:  # the last records have left: these are the answers
            sends[0].Wait()
        else:
            MPI.Request.Waitall(sends)
        return batch

    def wait(self, batch: int, seat: int) -> None:
        """Return once this seat has sent its message for this batch."""
        if self._bells:
            self._let_leave()
            self._await_ring(seat)
        self._waiter.until(self._receives[batch][seat].Test, self.missing)
        self._sends[batch][seat].Wait()

    def take_side(self, batch: int, seat: int) -> Any:
        """Return what a worker sent beside its message (its header said so)."""
        tag = _STREAMS * batch + _ACTIONS_SIDE
        return take(self._comm, self._workers[seat], tag, self._waiter, "what goes with a reset")

    def put_side(self, batch: int, seat: int, side: Any) -> None:
        """Send something beside the next record of a seat; its header must say so."""
        self._sides = [request for request in self._sides if not request.Test()]
        self._sides.append(self._comm.isend(side, self._workers[seat], _STREAMS * batch + _RECORD_SIDE))

    def send(self, batch: int) -> None:
        """Send every seat its record of this batch, and get ready for their next messages."""
        receives, sends = self._receives[batch], self._sends[batch]
        if len(sends) == 1:
            sends[0].Start()
            receives[0].Start()
        else:
            MPI.Prequest.Startall(sends)
            MPI.Prequest.Startall(receives)
        for ring in self._rings:
            ring()
        if self._turn is not None and not self._turn.suits():
            self._turn.close()
            self._turn = None

    def send_to(self, batch: int, seat: int) -> None:
        """Send one seat its record of this batch, and get ready for its next message."""
        self._sends[batch][seat].Start()
        self._receives[batch][seat].Start()
        if self._bells:
            self._rings[seat]()

    def send_last(self, batch: int) -> bool:
        """Send every seat the last record of this batch; return whether batches are still open."""
        MPI.Prequest.Startall(self._sends[batch])
        for ring in self._rings:
            ring()
        self._open.remove(batch)
        goes_on = bool(self._open or self._held)
        if self._turn is not None and not goes_on:
            self._turn.close()
        return goes_on

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
        for bells in self._bells:
            bells.close()


def _test(requests: Sequence[MPI.Request]) -> Callable[[], bool]:
    """Return what says whether all of these requests are done."""
    return requests[0].Test if len(requests) == 1 else partial(MPI.Request.Testall, requests)
