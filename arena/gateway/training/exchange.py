"""Exchange between the agents of external games and the workers of a match: observations out, actions back."""

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
from arena.gateway.batcher import ForwardResult
from arena.gateway.http.responses import Refusal
from arena.protocol.wire import BEGINS, MATCH_OVER, VOID, WITHDRAWN, Block, ObservationMessage

HEARTBEAT = 0.05
"""Seconds after which workers get a message even without requests: they handle the root's orders in between."""

LEARNING = 0.25
"""Seconds after which workers that have not answered are assumed to be learning."""

KEEN = 0.002
"""Seconds for which actions are polled for in every turn of the event loop."""

LONGEST_PAUSE = 0.002
"""Seconds between two polls after that."""


class Row:
    """Contribution of one lane to an exchange.

    Attributes:
      game: index of the game of its copy.
      observation: ``[1, ...]``, nested as the space; None if there is none.
      mask: ``[1, flags]``, or None.
      earned: reward since the previous row.
      over, cut, void, acting, begins, withdrawn: see ``arena.protocol.wire``.
      answer: future of the action; None if no request waits for one.
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
        """Create an empty row."""
        self.game, self.observation, self.mask = game, observation, mask
        self.earned = 0.0
        self.over = self.cut = self.void = self.acting = self.begins = self.withdrawn = False
        self.answer: asyncio.Future[ForwardResult] | None = None


class _Spot(NamedTuple):
    """Location of an entity in the messages of its seat.

    Attributes:
      seat: index of the seat.
      position: index among the seat's entities.
      block, place: block of equal spaces, and index in it.
    """

    seat: int
    position: int
    block: int
    place: int


class Exchange:
    """Cycles through exchanges: actions of the workers arrive, rows are collected, observations are sent.

    All rows of a copy's game are sent before those of its next one: a league's line-up is that of a whole copy.

    Attributes:
      versions: by entity, the transition steps that the latest acting policy had learned from, as text.
      on_acts: called with the copies in which an entity has acted, once for each exchange.
      write_lineup: writes the line-up into a copy's messages, with the first row of a game.
      failed: future of an exception in here.
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
        """Open the exchange.

        Args:
          channel: channel to the workers.
          seats: seats of the match.
          blocks: blocks of each seat.
          entities: entities of the environment; those without a seat have no rows.
          waiter: bounded waits, for the time limit of workers.
          note: writes a line to the run's log.
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
        self._games: dict[int, int] = {}  # copy -> the game of its latest row
        self._idle = False  # whether the workers' messages have arrived, and no exchange is in progress
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
        self._poll()

    async def begun(self) -> None:
        """Return once all workers are ready to act."""
        while not self._ready:
            await asyncio.sleep(LONGEST_PAUSE)

    def is_held(self) -> bool:
        """Return whether agents wait for workers that learn."""
        return not self._idle and time.monotonic() - self._since > LEARNING

    def add(self, lane: tuple[int, int], row: Row) -> None:
        """Send a row of a lane, (copy, entity), in one of the next exchanges; rows of a lane keep their order."""
        if self._broken:
            _fail_request(row)
            return
        queue = self._waiting.get(lane)
        if queue is None:
            queue = self._waiting[lane] = deque()
        queue.append(row)
        if self._idle and self._flush is None:
            self._flush = self._loop.call_soon(self._after_the_others)

    def roll_back(self, lane: tuple[int, int], row: Row) -> bool:
        """Withdraw a row; return False if it has been sent."""
        queue = self._waiting.get(lane)
        if queue is None or row not in queue:
            return False
        queue.remove(row)
        if not queue:
            del self._waiting[lane]
        return True

    def _after_the_others(self) -> None:
        """Let the other readable connections of this turn of the loop make their requests, too."""
        self._flush = self._loop.call_soon(self._send)

    def _send(self) -> None:
        """Send an exchange of the waiting rows, at most one row of each lane."""
        for handle in (self._flush, self._beat):
            if handle is not None:
                handle.cancel()
        self._flush = self._beat = None
        try:
            self._write()
            self._idle, self._told, self._since = False, False, time.monotonic()
            self._channel.send(0)
            self._poll()
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
        """Remove the first row of each lane, but none of a copy's next game while rows of an earlier one wait."""
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

    def _poll(self) -> None:
        """Check whether the workers have answered."""
        try:
            if self._channel.find_ready() is not None:
                self._take()
                return
            waited = time.monotonic() - self._since
            if waited < KEEN:
                os.sched_yield()
                self._loop.call_soon(self._poll)
                return
            if waited > self._waiter.warn_after and not self._told:
                self._told = True
                self._note(f"has waited for {waited:.0f} s for {self._channel.missing()}")
            if waited > self._waiter.abort_after:
                raise HangError(f"waited for {waited:.0f} s for {self._channel.missing()}")
            self._loop.call_later(min(LONGEST_PAUSE, waited / 16), self._poll)
        except Exception as error:
            self._fail(error)

    def _take(self) -> None:
        """Distribute the actions that have arrived."""
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
        """End the match once the workers' actions have arrived; ``over`` is done then."""
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
        """Refuse all waiting and all later requests: the run has failed."""
        self._broken = True
        waiting = [row for queue in self._waiting.values() for row in queue] + [row for _, row in self._sent]
        self._waiting.clear()
        for row in waiting:
            _fail_request(row)

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)


def _fail_request(row: Row) -> None:
    if row.answer is not None and not row.answer.done():
        row.answer.set_exception(Refusal(500, "internal", "the run has ended or failed; its log says why"))
