"""Channels between the seats of a match and its environment process: action messages out, observation messages back."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from arena.common.waiting import Waiter
from arena.comms.mpi import MPI, receive
from arena.comms.semaphores import SeatSemaphores
from arena.comms.time_slice import SOON, TimeSlice
from arena.comms.transport import ACTIONS_SIDE, OBSERVATIONS_SIDE, STREAMS, Transport, open_transports
from arena.comms.world import World
from arena.protocol.wire import STEP, Block, ObservationMessage


class SeatChannel:
    """The worker's end of a seat: for each batch one action message out and one observation message in."""

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
        """Open both directions.

        Args:
          world: all ranks.
          environment_rank: rank of the other end.
          blocks: the seat's entities, grouped by spaces.
          batch_copies: number of copies of each batch.
          waiter: how this rank waits.
          memory: segment that both ends have mapped, see ``open_transports``.
          semaphores: the seat's pair, if the ends wake each other by semaphores.
          marked: whether observation messages have marks.
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
        """Send the batch's actions, or a reset with ``side`` (pickled) beside it, and prepare to receive the reply."""
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
        """Return whether the batch's observation message has arrived."""
        return self._transports[batch].arrived()

    def wait(self, batch: int, unless: Callable[[], bool]) -> bool:
        """Wait for the batch's observation message until ``unless`` is true; return whether the message has arrived."""
        arrived = self._transports[batch].arrived
        self._waiter.until(lambda: arrived() or unless(), self._what)
        return arrived()

    def receive(self, batch: int) -> ObservationMessage:
        """Return the batch's observation message; it is valid until the next ``send`` of the batch."""
        if self._semaphores is not None:
            if self._sides:
                self._let_leave()
            self._waiter.until_acquired(self._semaphores.worker.acquire, self._what)
        arrived = self._transports[batch].arrived
        if not arrived():
            self._waiter.until(partial(self._meanwhile, arrived) if self._sides else arrived, self._what)
        return self.records[batch]

    def _meanwhile(self, arrived: Callable[[], bool]) -> bool:
        """Poll an arrival, and progress the pending side messages, which MPI may not do by itself."""
        self._sides = [request for request in self._sides if not request.Test()]
        return arrived()

    def _let_leave(self) -> None:
        """Wait until the pending side messages have been sent."""
        leaving = partial(MPI.Request.Testall, self._sides)
        self._waiter.until(leaving, lambda: "the last side messages to leave")
        self._sides = []

    def receive_side(self, batch: int) -> Any:
        """Return the side message of the batch, which the header has announced."""
        return receive(self._comm, self._peer, STREAMS * batch + OBSERVATIONS_SIDE, self._waiter, "infos")

    def close(self) -> None:
        """Free the requests and the memory."""
        self._let_leave()
        for transport in self._transports:
            transport.close(self._waiter)
        if self._semaphores is not None:
            self._semaphores.close()


class MatchChannel:
    """The environment process's end of a match: for each batch, all seats' actions in and their observations out."""

    def __init__(
        self,
        world: World,
        worker_ranks: Sequence[int],
        seat_blocks: Sequence[Sequence[Block]],
        batch_copies: Sequence[int],
        waiter: Waiter,
        memories: Sequence[memoryview | None],
        *,
        in_order: bool = False,
        semaphores: Sequence[SeatSemaphores] = (),
        time_slice: TimeSlice | None = None,
        marked: bool = False,
    ) -> None:
        """Open both directions for every seat.

        Args:
          world: all ranks.
          worker_ranks: rank of each seat.
          seat_blocks: blocks of each seat.
          batch_copies: number of copies of each batch.
          waiter: how this rank waits.
          memories: of each seat, the segment that both ends have mapped, see ``open_transports``.
          in_order: whether to accept batches in their order instead of that of their arrival.
          semaphores: of the seats, if the ends wake each other: one batch, or several in order.
          time_slice: time slice of the match, if several matches share the core.
          marked: whether observation messages have marks.
        """
        self._comm, self._workers, self._waiter = world.steps, tuple(worker_ranks), waiter
        self._in_order = in_order
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
        self._open = list(range(len(batch_copies)))  # the batch that is accepted next comes first
        self._held: set[int] = set()
        self._found = 0
        self._look = self._find if len(batches) > 1 else self._arrived[0]  # a wait polls this
        self._sides: list[MPI.Request] = []
        self._semaphores = tuple(semaphores)
        self._time_slice = time_slice
        self._releases = [each.worker.release for each in semaphores]
        self._all_seats = range(len(seats))
        self._awaited = [set(self._all_seats) for _ in batches]  # for each batch, the seats that have not sent yet

    def commands(self, batch: int) -> list[int]:
        """Return the command of each seat in its message of this batch; an empty list if all commands are steps."""
        for header in self._headers[batch]:
            if header[0] != STEP:
                return [header[0] for header in self._headers[batch]]
        return []

    def missing(self) -> str:
        """Name the workers that have not sent the messages the match waits for."""
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
        """Return a batch for which every seat has sent; ready batches are served round-robin."""
        if self._semaphores:
            self._acquire_all(self._open[0])
        elif not self._look():
            self._waiter.until(self._find_meanwhile if self._sides else self._look, self.missing)
        return self._accept()

    def _acquire_all(self, batch: int) -> None:
        """Acquire the semaphores of all seats that are to send, and wait for this match's time slice."""
        self._let_leave()
        for seat in reversed(range(len(self._semaphores))):  # the seat that is woken last usually replies last
            if seat in self._awaited[batch]:
                self._acquire(seat)
        self._awaited[batch].clear()
        if not self._arrived[batch]():  # a message of a later batch releases the semaphore, too
            self._waiter.until(self._arrived[batch], self.missing)
        self._found = batch
        if self._time_slice is not None:
            self._time_slice.release_if_over()
            if not self._time_slice.held:
                self._waiter.until_acquired(self._time_slice.acquire, lambda: "its time slice on its core")

    def _acquire(self, seat: int) -> None:
        """Acquire the semaphore of a seat; its message has arrived then."""
        if self._time_slice is not None and self._time_slice.held:
            if self._semaphores[seat].environment.acquire(SOON):
                return
            self._time_slice.release()
        self._waiter.until_acquired(self._semaphores[seat].environment.acquire, self.missing)

    def _let_leave(self) -> None:
        """Wait until the pending side messages have been sent: they make no progress while this rank sleeps.

        Their receiver may already wait for the next match.
        """
        leaving = partial(MPI.Request.Testall, self._sides)
        if self._sides and not leaving():
            if self._time_slice is not None:
                self._time_slice.release()
            self._waiter.until(leaving, lambda: "the last side messages to leave")
        self._sides = []

    def find_ready(self) -> int | None:
        """Return a batch for which every seat has sent, or None."""
        return self._accept() if self._find_meanwhile() else None

    def hold(self, batch: int) -> None:
        """Exclude a batch from polling until ``release``, while its reply is being computed."""
        self._open.remove(batch)
        self._held.add(batch)

    def release(self, batch: int) -> None:
        """Include a batch in polling again."""
        self._held.remove(batch)
        self._open.append(batch)

    def holds_all(self) -> bool:
        """Return whether every batch is held."""
        return not self._open

    def _find(self) -> bool:
        for batch in self._open:
            if self._arrived[batch]():
                self._found = batch
                return True
            if self._in_order:
                break
        return False

    def _find_meanwhile(self) -> bool:
        """Poll for a batch, and progress the pending side messages, which MPI may not do by itself."""
        self._sides = [request for request in self._sides if not request.Test()]
        return self._find()

    def _accept(self) -> int:
        batch = self._found
        if self._open[-1] != batch:
            self._open.remove(batch)
            self._open.append(batch)
        return batch

    def take_side(self, batch: int, seat: int) -> Any:
        """Return the side message of a worker, which the header has announced."""
        tag = STREAMS * batch + ACTIONS_SIDE
        return receive(self._comm, self._workers[seat], tag, self._waiter, "what goes with a reset")

    def put_side(self, batch: int, seat: int, side: Any) -> None:
        """Send a side message along with the next observation message of a seat; its header must announce it."""
        self._sides = [request for request in self._sides if not request.Test()]
        self._sides.append(self._comm.isend(side, self._workers[seat], STREAMS * batch + OBSERVATIONS_SIDE))

    def send(self, batch: int) -> None:
        """Send every seat its observation message of this batch, and prepare to receive their next messages."""
        for transport in self._transports[batch]:
            transport.send()
        if self._semaphores:
            self._awaited[batch].update(self._all_seats)
            for release in self._releases:
                release()
        if self._time_slice is not None and not self._time_slice.is_useful():
            self._time_slice.close()
            self._time_slice = None

    def send_to(self, batch: int, seat: int) -> None:
        """Send one seat its observation message of this batch, and prepare to receive its next message."""
        self._transports[batch][seat].send()
        if self._semaphores:
            self._awaited[batch].add(seat)
            self._releases[seat]()

    def send_last(self, batch: int) -> bool:
        """Send every seat the last observation message of this batch; return whether other batches are still open."""
        for transport in self._transports[batch]:
            transport.send()
        for release in self._releases:
            release()
        self._open.remove(batch)
        continues = bool(self._open or self._held)
        if self._time_slice is not None and not continues:
            self._time_slice.close()
        return continues

    def close(self) -> None:
        """Wait until the last messages have been sent, and free the requests and the memory."""
        self._let_leave()
        for transports in self._transports:
            for transport in transports:
                transport.close(self._waiter)
        for semaphores in self._semaphores:
            semaphores.close()


def _arrived(transports: Sequence[Transport]) -> Callable[[], bool]:
    """Return a function that reports whether a message has arrived on each of these transports."""
    return (
        transports[0].arrived if len(transports) == 1 else lambda: all(transport.arrived() for transport in transports)
    )
