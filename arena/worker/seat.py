"""The worker's side of a seat: the offer of its environment process, and the exchanges with it."""

import sys
from collections.abc import Callable
from typing import Any, NoReturn

from arena.common.errors import ConfigError, MatchGivenUpError, MatchOver, PolicyGoesOnError
from arena.common.trees import even_slices
from arena.common.waiting import Waiter
from arena.comms import Mailbox, SeatChannel, SeatSemaphores, World, memory_needed
from arena.group.context import Context
from arena.protocol.seat import SeatAnswer, SeatOffer, SeatRequest, StepInfos
from arena.protocol.wire import DONE, GIVEN_UP, MATCH_OVER, STEP, Block, ObservationMessage, blocks_of
from arena.system.shared_memory import find_memory

CALLS_AFTER_END = 100
"""Number of steps that a policy may attempt after its match is over."""


class Seat:
    """The worker's side of its match.

    Attributes:
      offer: description of the seat.
      blocks: its entities, grouped by equal spaces.
      slices: the copies of each batch.
      steps: transition steps of this seat's entities (counted by the loop that drives the seat).
      messages, records: action and observation message of each batch.
      in_hand: whether each batch's observation message has arrived and was not answered yet.
      housekeeping: called in each exchange of the first batch.
      budget: transition steps beyond which ``overdue`` is called before each exchange of the first batch.
      overdue: called there; may raise ``MatchOver``.
      done: whether each message announces that this seat needs no more steps; the match is over once all seats do.
    """

    def __init__(
        self,
        world: World,
        mailbox: Mailbox,
        environment_rank: int,
        request: SeatRequest,
        waiter: Waiter,
        number: int = 0,
    ) -> None:
        mailbox.reply(environment_rank, request, number)
        self.offer: SeatOffer = mailbox.collect(environment_rank, waiter, "the offer of a seat", number)
        self.blocks: tuple[Block, ...] = blocks_of(self.offer.entities)
        self.slices = even_slices(self.offer.copies, self.offer.batches)
        batch_copies = [s.stop - s.start for s in self.slices]
        semaphores = None if self.offer.semaphores is None else SeatSemaphores.find(self.offer.semaphores)
        memory = None
        if self.offer.memory is not None:
            needed = memory_needed(self.blocks, batch_copies, marked=self.offer.acts_on_request)
            memory = find_memory(self.offer.memory, needed)
        if semaphores is not None and memory is None:
            raise ConfigError(
                "pin_matches: expected the ranks of a machine to share memory, found a rank that cannot open the "
                "memory of another rank, for example since each rank runs in its own container; set pin_matches: false"
            )
        self._channel = SeatChannel(
            world,
            environment_rank,
            self.blocks,
            batch_copies,
            waiter,
            memory,
            semaphores,
            marked=self.offer.acts_on_request,
        )
        mailbox.reply(environment_rank, SeatAnswer(memory is not None), number)
        self.steps = 0
        self.housekeeping: Callable[[], None] = lambda: None
        self.budget = sys.maxsize
        self.overdue: Callable[[], None] = lambda: None
        self.done = False
        self.messages = self._channel.messages
        self.records = self._channel.records
        self.in_hand = [False] * self.offer.batches
        self._awaiting = [False] * self.offer.batches
        self._over = [False] * self.offer.batches
        self._calls_after_end = -1  # -1 until the match is over
        self._error: type[MatchOver] = MatchOver

    def send(self, batch: int, command: int = 0, side: Any = None) -> None:
        """Send a batch's actions (which lie in ``messages[batch].actions``), or a reset.

        Raises:
          MatchOver: the match has ended before.
          PolicyGoesOnError: the same, after many attempts.
        """
        if self._calls_after_end >= 0:
            self._raise_match_over()
        if self.steps >= self.budget and not batch:
            self.overdue()
        self._channel.send(batch, command or (DONE if self.done else STEP), side)
        self._awaiting[batch] = True  # from here on the environment process works, too
        self.in_hand[batch] = False
        if batch == 0:
            self.housekeeping()

    @property
    def is_over(self) -> bool:
        """Whether the match has ended."""
        return all(self._over)

    def end(self, error: type[MatchOver]) -> NoReturn:
        """Raise an error, now and at each further exchange of the policy, though the match continues.

        Raises:
          MatchOver: always, as ``error``.
        """
        self._error = error
        self._raise_match_over()

    def _raise_match_over(self) -> NoReturn:
        self._calls_after_end += 1
        if self._calls_after_end > CALLS_AFTER_END:
            raise PolicyGoesOnError(
                "expected a policy that returns from run, or lets MatchOver pass, when its match is over; found one "
                f"that has stepped its environment {CALLS_AFTER_END} times since then"
            )
        raise self._error

    def play_on(self) -> None:
        """Accept further steps, by the worker itself: the match continues without the policy's ``run``."""
        self.budget = sys.maxsize
        if not self.is_over:
            self._calls_after_end, self._error = -1, MatchOver

    def receive(self, batch: int) -> ObservationMessage:
        """Return the reply to ``send``, valid until the batch's next ``send``.

        Raises:
          MatchOver: the match has ended; the seat is drained and must not be used again.
        """
        record = self._channel.receive(batch)
        self._awaiting[batch] = False
        self.in_hand[batch] = True
        if record.header[0] & MATCH_OVER:
            self._over[batch] = True
            self.drain()
            self._calls_after_end = 0
            raise MatchGivenUpError if record.header[0] & GIVEN_UP else MatchOver
        return record

    def arrived(self, batch: int) -> bool:
        """Return whether the reply to ``send`` has arrived."""
        return self._channel.arrived(batch)

    def wait(self, batch: int, unless: Callable[[], bool]) -> bool:
        """Wait for the reply to ``send`` until ``unless`` is true; return whether the reply has arrived."""
        return self._channel.wait(batch, unless)

    def is_pending(self, batch: int) -> bool:
        """Return whether the batch's next message is pending."""
        return self._awaiting[batch]

    def side(self, batch: int, record: ObservationMessage) -> StepInfos | None:
        """Return the side message of an observation message, or None."""
        return self._channel.receive_side(batch) if record.header[1] else None

    def drain(self) -> None:
        """Step without decisions until every batch has received the end of the match."""
        while not all(self._over):
            for batch, over in enumerate(self._over):
                if over:
                    continue
                if not self._awaiting[batch]:
                    self._channel.send(batch, DONE)
                self._awaiting[batch] = False
                record = self._channel.receive(batch)
                if record.header[1]:
                    self._channel.receive_side(batch)
                self._over[batch] = bool(record.header[0] & MATCH_OVER)

    def close(self) -> None:
        """Free the requests, once the match is over."""
        self._channel.close()


def take_seat(context: Context, environment_rank: int, request: SeatRequest) -> Seat:
    """Return the seat that the environment process at a rank offers to this rank; see ``Seat``."""
    number = context.me.seat or 0
    return Seat(context.world, context.mailbox, environment_rank, request, context.waiter, number)
