"""What carries actions from the seats of a match to its environment process, and records back."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from arena.common.waiting import Waiter
from arena.comms.mpi import MPI, take
from arena.comms.semaphores import SeatSemaphores
from arena.comms.time_slice import SOON, TimeSlice
from arena.comms.transport import ACTIONS_SIDE, OBSERVATIONS_SIDE, STREAMS, Transport, open_transports
from arena.comms.world import World
from arena.protocol.wire import STEP, Block, ObservationMessage


class SeatChannel:
    """The worker's end of its seat: for each batch one message out and one record in."""

    def __init__(
        self,
        world: World,
        environment_rank: int,
        blocks: Sequence[Block],
        batch_copies: Sequence[int],
        waiter: Waiter,
        memory: memoryview | None,
        semaphores: SeatSemaphores | None,
        *,
        marked: bool = False,
    ) -> None:
        """Get ready for both directions.

        Args:
          world: all ranks.
          environment_rank: of the other end.
          blocks: of the seat.
          batch_copies: of each batch.
          waiter: how this rank waits.
          memory: that both ends have mapped, see ``open_transports``.
          semaphores: of the seat, by which the ends wake each other.
          marked: whether records have marks.
        """
        self.batches = len(batch_copies)
        self._comm, self._peer, self._waiter = world.steps, environment_rank, waiter
        linked = list(
            open_transports(self._comm, environment_rank, blocks, batch_copies, memory, at_seat=True, marked=marked)
        )
        self.messages = [batch.message for batch in linked]
        self.records = [batch.record for batch in linked]
        self._transports = [batch.transport for batch in linked]
        self._sides: list[MPI.Request] = []
        self._what = lambda: f"the environment process (rank {environment_rank})"
        self._semaphores = semaphores

    def send(self, batch: int, command: int = 0, side: Any = None) -> None:
        """Send the batch's actions, or a reset with ``side`` (pickled) beside it, and get ready for the answer."""
        if self._sides:
            self._sides = [request for request in self._sides if not request.Test()]
        header = self.messages[batch].header
        header[0] = command
        header[1] = 0
        if side is not None:
            header[1] = 1
            self._sides.append(self._comm.isend(side, self._peer, STREAMS * batch + ACTIONS_SIDE))
        self._transports[batch].send()
        if self._semaphores is not None:
            self._semaphores.environment.release()

    def arrived(self, batch: int) -> bool:
        """Whether the batch's record is here."""
        return self._transports[batch].arrived()

    def wait(self, batch: int, unless: Callable[[], bool]) -> bool:
        """Wait for the batch's record, unless something else comes first; return whether the record is here."""
        arrived = self._transports[batch].arrived
        self._waiter.until(lambda: arrived() or unless(), self._what)
        return arrived()

    def receive(self, batch: int) -> ObservationMessage:
        """Return the batch's record; it is valid until the next ``send`` of the batch."""
        if self._semaphores is not None:
            if self._sides:
                self._let_leave()
            self._waiter.until_acquired(self._semaphores.worker.acquire, self._what)
        arrived = self._transports[batch].arrived
        if not arrived():
            self._waiter.until(partial(self._meanwhile, arrived) if self._sides else arrived, self._what)
        return self.records[batch]

    def _meanwhile(self, arrived: Callable[[], bool]) -> bool:
        """Ask while what lies beside a message leaves, which it might not do without being asked."""
        self._sides = [request for request in self._sides if not request.Test()]
        return arrived()

    def _let_leave(self) -> None:
        """Wait for what lies beside messages."""
        leaving = partial(MPI.Request.Testall, self._sides)
        self._waiter.until(leaving, lambda: "the last side messages to leave")
        self._sides = []

    def receive_side(self, batch: int) -> Any:
        """Return what came beside the batch's record (its header said so)."""
        return take(self._comm, self._peer, STREAMS * batch + OBSERVATIONS_SIDE, self._waiter, "infos")

    def close(self) -> None:
        """Give everything back."""
        self._let_leave()
        for transport in self._transports:
            transport.close(self._waiter)
        if self._semaphores is not None:
            self._semaphores.close()


class MatchChannel:
    """The environment process's end of a match: for each batch, all seats' messages in and their records out."""

    def __init__(
        self,
        world: World,
        worker_ranks: Sequence[int],
        seat_blocks: Sequence[Sequence[Block]],
        batch_copies: Sequence[int],
        waiter: Waiter,
        memories: Sequence[memoryview | None],
        *,
        in_turn: bool = False,
        semaphores: Sequence[SeatSemaphores] = (),
        turn: TimeSlice | None = None,
        marked: bool = False,
    ) -> None:
        """Get ready for the seats' messages.

        Args:
          world: all ranks.
          worker_ranks: of the seats.
          seat_blocks: of each seat.
          batch_copies: of each batch.
          waiter: how this rank waits.
          memories: of each seat, what both ends have mapped, see ``open_transports``.
          in_turn: whether to take batches in their order, not as they come.
          semaphores: of the seats, where the ends wake each other: one batch, or several in turn.
          turn: where matches share the core.
          marked: whether records have marks.
        """
        self._comm, self._workers, self._waiter = world.steps, tuple(worker_ranks), waiter
        self._in_turn = in_turn
        seats = [
            list(open_transports(self._comm, rank, blocks, batch_copies, memory, at_seat=False, marked=marked))
            for rank, blocks, memory in zip(worker_ranks, seat_blocks, memories, strict=True)
        ]
        batches = list(zip(*seats, strict=True))
        self.messages = [[seat.message for seat in batch] for batch in batches]
        self.records = [[seat.record for seat in batch] for batch in batches]
        self._transports = [[seat.transport for seat in batch] for batch in batches]
        self._arrived = [_arrived(transports) for transports in self._transports]
        self._headers = [[message.header for message in messages] for messages in self.messages]
        self._open = list(range(len(batch_copies)))  # whose turn is next comes first
        self._held: set[int] = set()
        self._found = 0
        self._look = self._find if len(batches) > 1 else self._arrived[0]  # a look is what a wait consists of
        self._sides: list[MPI.Request] = []
        self._semaphores = tuple(semaphores)
        self._turn = turn
        self._releases = [each.worker.release for each in semaphores]
        self._all_seats = range(len(seats))
        self._awaited = [set(self._all_seats) for _ in batches]  # for each batch the seats whose message is awaited

    def asked(self, batch: int) -> list[int]:
        """Return what each seat asks for in its message of this batch; an empty list where all ask for a step."""
        for header in self._headers[batch]:
            if header[0] != STEP:
                return [header[0] for header in self._headers[batch]]
        return []

    def missing(self) -> str:
        """Name the workers that have not sent what the match waits for."""
        late = sorted(
            {
                rank
                for batch in self._open
                for rank, transport in zip(self._workers, self._transports[batch], strict=True)
                if not transport.arrived()
            }
        )
        return f"actions from worker ranks {late}"

    def wait_any(self) -> int:
        """Return a batch for which every seat has sent; batches that are ready take turns."""
        if self._semaphores:
            self._acquire_all(self._open[0])
        elif not self._look():
            self._waiter.until(self._find_meanwhile if self._sides else self._look, self.missing)
        return self._accept()

    def _acquire_all(self, batch: int) -> None:
        """Acquire the semaphores of all seats that are to answer, and wait until it is this match's turn."""
        self._let_leave()
        for seat in reversed(range(len(self._semaphores))):  # the last to be woken is the last to answer, as a rule
            if seat in self._awaited[batch]:
                self._acquire(seat)
        self._awaited[batch].clear()
        if not self._arrived[batch]():  # a message of a later batch releases it, too
            self._waiter.until(self._arrived[batch], self.missing)
        self._found = batch
        if self._turn is not None:
            self._turn.give_if_over()
            if not self._turn.held:
                self._waiter.until_acquired(self._turn.take, lambda: "its turn on its core")

    def _acquire(self, seat: int) -> None:
        """Acquire a seat's semaphore; a message is there then."""
        if self._turn is not None and self._turn.held:
            if self._semaphores[seat].environment.acquire(SOON):
                return
            self._turn.give()
        self._waiter.until_acquired(self._semaphores[seat].environment.acquire, self.missing)

    def _let_leave(self) -> None:
        """Wait for what lies beside records, which would not get on while this rank sleeps.

        Its receiver may already wait for the next match.
        """
        leaving = partial(MPI.Request.Testall, self._sides)
        if self._sides and not leaving():
            if self._turn is not None:
                self._turn.give()
            self._waiter.until(leaving, lambda: "the last side messages to leave")
        self._sides = []

    def find_ready(self) -> int | None:
        """Return such a batch where there is one now."""
        return self._accept() if self._find_meanwhile() else None

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
            if self._arrived[batch]():
                self._found = batch
                return True
            if self._in_turn:
                break
        return False

    def _find_meanwhile(self) -> bool:
        """Find a batch while what lies beside records leaves, which it might not do without being asked."""
        self._sides = [request for request in self._sides if not request.Test()]
        return self._find()

    def _accept(self) -> int:
        batch = self._found
        if self._open[-1] != batch:
            self._open.remove(batch)
            self._open.append(batch)
        return batch

    def take_side(self, batch: int, seat: int) -> Any:
        """Return what a worker sent beside its message (its header said so)."""
        tag = STREAMS * batch + ACTIONS_SIDE
        return take(self._comm, self._workers[seat], tag, self._waiter, "what goes with a reset")

    def put_side(self, batch: int, seat: int, side: Any) -> None:
        """Send something beside the next record of a seat; its header must say so."""
        self._sides = [request for request in self._sides if not request.Test()]
        self._sides.append(self._comm.isend(side, self._workers[seat], STREAMS * batch + OBSERVATIONS_SIDE))

    def send(self, batch: int) -> None:
        """Send every seat its record of this batch, and get ready for their next messages."""
        for transport in self._transports[batch]:
            transport.send()
        if self._semaphores:
            self._awaited[batch].update(self._all_seats)
            for release in self._releases:
                release()
        if self._turn is not None and not self._turn.suits():
            self._turn.close()
            self._turn = None

    def send_to(self, batch: int, seat: int) -> None:
        """Send one seat its record of this batch, and get ready for its next message."""
        self._transports[batch][seat].send()
        if self._semaphores:
            self._awaited[batch].add(seat)
            self._releases[seat]()

    def send_last(self, batch: int) -> bool:
        """Send every seat the last record of this batch; return whether batches are still open."""
        for transport in self._transports[batch]:
            transport.send()
        for release in self._releases:
            release()
        self._open.remove(batch)
        continues = bool(self._open or self._held)
        if self._turn is not None and not continues:
            self._turn.close()
        return continues

    def close(self) -> None:
        """Wait until the last records have left, and give everything back."""
        self._let_leave()
        for transports in self._transports:
            for transport in transports:
                transport.close(self._waiter)
        for semaphores in self._semaphores:
            semaphores.close()


def _arrived(transports: Sequence[Transport]) -> Callable[[], bool]:
    """Return what says whether a message has arrived on each of these."""
    return (
        transports[0].arrived if len(transports) == 1 else lambda: all(transport.arrived() for transport in transports)
    )
