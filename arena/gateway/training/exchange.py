"""Carries what agents of games outside see to the workers on the seats of a match, and actions back."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from arena.common.trees import Tree, map_tree, put
from arena.common.waiting import HangError, Waiter
from arena.comms import MatchChannel
from arena.config.table import Seat
from arena.envs.interface import EntitySpaces
from arena.gateway.answers import Refusal
from arena.gateway.batcher import ForwardResult
from arena.protocol.wire import BEGINS, MATCH_OVER, VOID, WITHDRAWN, Block, ObservationMessage

HEARTBEAT = 0.05
"""Seconds after which workers get a record although nobody has asked: they look after the root's orders in between."""

LEARNING = 0.25
"""Seconds after which workers that have not answered are taken to learn."""

KEEN = 0.002
"""Seconds for which an answer is looked for in every turn of the event loop."""

LONGEST_PAUSE = 0.002
"""Seconds between two looks behind that."""


class Row:
    """What is to be told of one lane in an exchange.

    Attributes:
      game: number of the game of its copy.
      observation: ``[1, ...]``, nested as the space; None where there is none to tell.
      mask: ``[1, flags]``, or None.
      earned: since the row before.
      over, cut, void, acting, begins, withdrawn: see ``arena.protocol.wire``.
      answer: gets the action; None where nobody has asked for one.
    """

    __slots__ = (
        "acting",
        "answer",
        "begins",
        "cut",
        "earned",
        "game",
        "mask",
        "observation",
        "over",
        "void",
        "withdrawn",
    )

    def __init__(self, game: int, observation: Tree = None, mask: np.ndarray | None = None) -> None:
        """Tell nothing yet."""
        self.game, self.observation, self.mask = game, observation, mask
        self.earned = 0.0
        self.over = self.cut = self.void = self.acting = self.begins = self.withdrawn = False
        self.answer: asyncio.Future[ForwardResult] | None = None


class _Spot(NamedTuple):
    """Where an entity is in the records of its seat.

    Attributes:
      seat: number of the seat.
      position: among the seat's entities.
      block, place: which block of equal spaces, and where in it.
    """

    seat: int
    position: int
    block: int
    place: int


class Exchange:
    """Goes round and round: the workers' actions come, rows are waited for, a record is sent.

    A copy's rows of one game are told before those of its next one: a league's line-up is told of a whole copy.

    Attributes:
      versions: by entity, how far the policy had learned that has acted last, in transition steps, as a text.
      on_acts: is told the copies in which somebody has acted, once for each exchange.
      write_lineup: writes who plays into a copy's records, when a game of it is told of first.
      failed: gets what has gone wrong here.
    """

    def __init__(
        self,
        channel: MatchChannel,
        seats: Sequence[Seat],
        blocks: Sequence[Sequence[Block]],
        entities: Sequence[EntitySpaces],
        waiter: Waiter,
        note: Callable[[str], None],
    ) -> None:
        """Take the way to the workers.

        Args:
          channel: to them.
          seats: of the match.
          blocks: of each seat.
          entities: of the environment; those of no seat have no rows.
          waiter: says how long a worker may take.
          note: puts a line into the run's log.
        """
        self._channel, self._waiter, self._note = channel, waiter, note
        self._records: Sequence[ObservationMessage] = channel.records[0]
        self._messages = channel.messages[0]
        self._spots: dict[int, _Spot] = {}
        for number, seat in enumerate(seats):
            for block, each in enumerate(blocks[number]):
                for place, position in enumerate(each.positions):
                    self._spots[seat.entities[position]] = _Spot(number, position, block, place)
        self._waiting: dict[tuple[int, int], deque[Row]] = {}
        self._sent: list[tuple[tuple[int, int], Row]] = []
        self._games: dict[int, int] = {}  # copy -> the game that was told of last
        self._idle = False  # whether the workers' messages are here, and no record is under way
        self._flush: asyncio.Handle | None = None
        self._beat: asyncio.Handle | None = None
        self._since = 0.0
        self._told = self._closing = self._ready = self._broken = False
        self.versions = ["0"] * len(entities)
        self.on_acts: Callable[[Iterable[int]], None] = lambda copies: None
        self.write_lineup: Callable[[int, int, Sequence[ObservationMessage]], None] = lambda copy, game, records: None

    def begin(self) -> None:
        """Begin to wait for the workers' first messages."""
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._since = time.monotonic()
        self._look()

    async def begun(self) -> None:
        """Return once all workers are ready to act."""
        while not self._ready:
            await asyncio.sleep(LONGEST_PAUSE)

    def is_held(self) -> bool:
        """Whether agents wait for workers that learn."""
        return not self._idle and time.monotonic() - self._since > LEARNING

    def add(self, lane: tuple[int, int], row: Row) -> None:
        """Tell a row of a lane, (copy, entity), in one of the next exchanges; rows of a lane keep their order."""
        if self._broken:
            _refuse(row)
            return
        queue = self._waiting.get(lane)
        if queue is None:
            queue = self._waiting[lane] = deque()
        queue.append(row)
        if self._idle and self._flush is None:
            self._flush = self._loop.call_soon(self._after_the_others)

    def roll_back(self, lane: tuple[int, int], row: Row) -> bool:
        """Tell a row no more; False where it has been told."""
        queue = self._waiting.get(lane)
        if queue is None or row not in queue:
            return False
        queue.remove(row)
        if not queue:
            del self._waiting[lane]
        return True

    def _after_the_others(self) -> None:
        """Let the others that were readable in this turn of the loop ask, too."""
        self._flush = self._loop.call_soon(self._send)

    def _send(self) -> None:
        """Send a record of what waits, at most one row of each lane."""
        for handle in (self._flush, self._beat):
            if handle is not None:
                handle.cancel()
        self._flush = self._beat = None
        try:
            self._write()
            self._idle, self._told, self._since = False, False, time.monotonic()
            self._channel.send(0)
            self._look()
        except Exception as error:
            self._fail(error)

    def _write(self) -> None:
        for record in self._records:
            for array in (
                record.rewards,
                record.terminated,
                record.truncated,
                record.acting,
                record.started,
                record.marks,
            ):
                array.fill(0)
            record.header[0] = record.header[1] = 0
        acted: dict[int, None] = {}
        for lane, row in self._choose():
            copy, entity = lane
            if self._games.get(copy) != row.game:
                self._games[copy] = row.game
                for record in self._records:
                    record.started[copy] = True
                self.write_lineup(copy, row.game, self._records)
            self._put(copy, self._spots[entity], row)
            if row.acting:
                acted[copy] = None
                self._sent.append((lane, row))
        if acted:
            self.on_acts(acted)

    def _choose(self) -> list[tuple[tuple[int, int], Row]]:
        """Take the first row of each lane, but none of a copy's next game while rows of an earlier one wait."""
        oldest: dict[int, int] = {}
        for (copy, _), queue in self._waiting.items():
            game = queue[0].game
            if game < oldest.get(copy, game + 1):
                oldest[copy] = game
        chosen = []
        for lane, queue in list(self._waiting.items()):
            if queue[0].game == oldest[lane[0]]:
                chosen.append((lane, queue.popleft()))
                if not queue:
                    del self._waiting[lane]
        return chosen

    def _put(self, copy: int, spot: _Spot, row: Row) -> None:
        record, position = self._records[spot.seat], spot.position
        record.rewards[copy, position] = row.earned
        record.terminated[copy, position] = row.over
        record.truncated[copy, position] = row.cut
        record.acting[copy, position] = row.acting
        record.marks[copy, position] = BEGINS * row.begins + WITHDRAWN * row.withdrawn + VOID * row.void
        if row.observation is not None:
            where = (copy, spot.place)
            put(record.observations[spot.block], where, map_tree(lambda leaf: leaf[0], row.observation))
            mask = record.action_masks[spot.block]
            if mask is not None:
                mask[where] = 1 if row.mask is None else row.mask[0]

    def _look(self) -> None:
        """See whether the workers have answered."""
        try:
            if self._channel.find_ready() is not None:
                self._take()
                return
            waited = time.monotonic() - self._since
            if waited < KEEN:
                os.sched_yield()
                self._loop.call_soon(self._look)
                return
            if waited > self._waiter.warn_after and not self._told:
                self._told = True
                self._note(f"has waited for {waited:.0f} s for {self._channel.missing()}")
            if waited > self._waiter.abort_after:
                raise HangError(f"waited for {waited:.0f} s for {self._channel.missing()}")
            self._loop.call_later(min(LONGEST_PAUSE, waited / 16), self._look)
        except Exception as error:
            self._fail(error)

    def _take(self) -> None:
        """Hand out the actions that have come."""
        self._idle = self._ready = True
        for entity, spot in self._spots.items():
            steps = self._messages[spot.seat].header[2]
            if int(self.versions[entity]) != steps:
                self.versions[entity] = str(steps)
        for (copy, entity), row in self._sent:
            if row.answer is None or row.answer.done():
                continue
            spot = self._spots[entity]
            here = slice(spot.place, spot.place + 1)
            actions = map_tree(
                lambda leaf, c=copy, at=here: leaf[c, at].copy(), self._messages[spot.seat].actions[spot.block]
            )
            row.answer.set_result(ForwardResult(actions, self.versions[entity]))
        self._sent.clear()
        if self._closing:
            self._close()
        elif self._waiting:
            self._flush = self._loop.call_soon(self._after_the_others)
        else:
            self._beat = self._loop.call_later(HEARTBEAT, self._send)

    def close(self) -> None:
        """End the match as soon as the workers' actions are here; ``over`` is done then."""
        self._closing = True
        if self._idle:
            self._close()

    def _close(self) -> None:
        for handle in (self._flush, self._beat):
            if handle is not None:
                handle.cancel()
        self._idle = False
        for record in self._records:
            record.header[0], record.header[1] = MATCH_OVER, 0
        self._channel.send_last(0)
        self.break_off()
        if not self.over.done():
            self.over.set_result(None)

    def break_off(self) -> None:
        """Answer all that wait, and all that come, that the run has failed."""
        self._broken = True
        waiting = [row for queue in self._waiting.values() for row in queue] + [row for _, row in self._sent]
        self._waiting.clear()
        for row in waiting:
            _refuse(row)

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)


def _refuse(row: Row) -> None:
    if row.answer is not None and not row.answer.done():
        row.answer.set_exception(Refusal(500, "internal", "the run has ended or failed; its log says why"))
