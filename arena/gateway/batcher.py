"""Batches of forward passes: requests of one turn of the event loop are answered by one of them.

No timer is needed: the busier the server, the more sockets are readable in one turn, and the larger the batch.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np

from arena.common.trees import Tree, map_tree, put, tree_leaves


class Batch(NamedTuple):
    """Rows of a forward pass, views of the batcher's arrays: valid during the pass.

    Attributes:
      observations: ``[N, ...]``, nested as the space.
      masks: ``[N, flags]`` int8, nonzero is allowed; None where the player has no masks.
      starts: ``[N]`` bool, True where an episode starts.
      lanes: ``[N]``, where the memory of each row lies; None for a player without memory.
    """

    observations: Tree
    masks: np.ndarray | None
    starts: np.ndarray
    lanes: np.ndarray | None


class ForwardResult(NamedTuple):
    """What a forward pass has said of some rows.

    Attributes:
      rows: arrays ``[N, ...]``.
      by: what has said it: the version of the weights.
    """

    rows: Tree
    by: str


class _Ask(NamedTuple):
    rows: int
    observations: Tree
    masks: np.ndarray | None
    start: bool
    lane: int
    answer: "asyncio.Future[ForwardResult]"


class Batcher:
    """Collects what is asked and answers it batch by batch, in order.

    Attributes:
      waiting: rows that wait for a forward pass.
    """

    def __init__(
        self,
        forward: Callable[[Batch], ForwardResult],
        observations: Tree,
        *,
        flags: int = 0,
        memory: bool = False,
        max_wait: float = 0.0,
        executor: Executor | None = None,
    ) -> None:
        """Prepare to collect.

        Args:
          forward: the pass: a batch in, arrays ``[N, ...]`` out, which it leaves to the caller.
          observations: arrays ``[max_batch, ...]`` in which batches are laid out; an ask of more rows than that is a
            pass of its own.
          flags: of a row's action mask, 0 for none.
          memory: whether rows have lanes.
          max_wait: seconds that a batch waits to become full; 0 waits for nobody.
          executor: a thread for passes that would hold up the event loop; None runs them in the loop.
        """
        self._forward, self._executor, self._max_wait = forward, executor, max_wait
        self._observations = observations
        max_batch = self._max_batch = len(tree_leaves(observations)[0])
        self._masks = np.ones((max_batch, flags), np.int8) if flags else None
        self._starts = np.zeros(max_batch, bool)
        self._lanes = np.zeros(max_batch, np.int64) if memory else None
        self._asked: deque[_Ask] = deque()
        self._flush: asyncio.Handle | None = None
        self._running = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.waiting = 0

    def ask(
        self, observations: Tree, masks: np.ndarray | None = None, *, rows: int = 1, start: bool = True, lane: int = -1
    ) -> "asyncio.Future[ForwardResult]":
        """Ask for what the forward pass says of some rows; must be called in the event loop.

        Args:
          observations: ``[rows, ...]``, checked: in the dtypes of the space and finite. They are not copied, so the
            caller leaves them alone.
          masks: ``[rows, flags]``; None allows everything.
          rows: how many.
          start: whether they are the first of an episode.
          lane: where the memory of the row lies, for a player with memory.
        """
        loop = self._loop
        if loop is None or loop.is_closed():  # to ask which one runs costs a system call
            loop = self._loop = asyncio.get_running_loop()
        answer: asyncio.Future[Tree] = loop.create_future()
        self._asked.append(_Ask(rows, observations, masks, start, lane, answer))
        self.waiting += rows
        if self._running:
            return answer
        if self.waiting >= self._max_batch:
            self._cancel()
            self._run()
        elif self._flush is None:
            # Two steps of the loop: in the first one the others that were readable ask, too.
            wait = self._max_wait
            self._flush = loop.call_later(wait, self._run) if wait else loop.call_soon(self._after_the_others, loop)
        return answer

    def _after_the_others(self, loop: asyncio.AbstractEventLoop) -> None:
        self._flush = loop.call_soon(self._run)

    def _cancel(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None

    def _run(self) -> None:
        """Answer what waits: all of it in the loop, or a batch in the thread, which then comes back for more."""
        self._flush = None
        while self._asked:
            asks, batch = self._next()
            if self._executor is None:
                self._answer(asks, *_attempt(self._forward, batch))
                continue
            self._running = True
            assert self._loop is not None
            done = self._loop.run_in_executor(self._executor, _attempt, self._forward, batch)
            done.add_done_callback(lambda future, asks=asks: self._resume(asks, future))  # type: ignore[misc]
            return

    def _resume(
        self, asks: list[_Ask], future: "asyncio.Future[tuple[ForwardResult | None, Exception | None]]"
    ) -> None:
        self._running = False
        if not future.cancelled():
            self._answer(asks, *future.result())
        self._run()

    def _next(self) -> tuple[list[_Ask], Batch]:
        """Take the asks of the next batch, and lay their rows out."""
        asks, rows = [self._asked.popleft()], 0
        total = asks[0].rows
        while self._asked and total + self._asked[0].rows <= self._max_batch:
            asks.append(self._asked.popleft())
            total += asks[-1].rows
        self.waiting -= total
        if total > self._max_batch:
            return asks, self._alone(asks[0])
        for ask in asks:
            where = slice(rows, rows + ask.rows)
            put(self._observations, where, ask.observations)
            if self._masks is not None:
                self._masks[where] = 1 if ask.masks is None else ask.masks
            self._starts[where] = ask.start
            if self._lanes is not None:
                self._lanes[where] = ask.lane
            rows += ask.rows
        return asks, Batch(
            map_tree(lambda leaf: leaf[:rows], self._observations),
            None if self._masks is None else self._masks[:rows],
            self._starts[:rows],
            None if self._lanes is None else self._lanes[:rows],
        )

    def _alone(self, ask: _Ask) -> Batch:
        masks = ask.masks
        if masks is None and self._masks is not None:
            masks = np.ones((ask.rows, self._masks.shape[1]), np.int8)
        lanes = None if self._lanes is None else np.full(ask.rows, ask.lane)
        return Batch(ask.observations, masks, np.full(ask.rows, ask.start), lanes)

    def _answer(self, asks: list[_Ask], answered: ForwardResult | None, error: Exception | None) -> None:
        if error is not None and len(asks) > 1:
            self._one_by_one(asks)
            return
        rows = 0
        for ask in asks:
            if ask.answer.cancelled():
                pass
            elif answered is None:
                ask.answer.set_exception(error or RuntimeError("the forward pass has returned no actions"))
            else:
                part = slice(rows, rows + ask.rows)
                mine = map_tree(lambda leaf, part=part: leaf[part], answered.rows)
                ask.answer.set_result(ForwardResult(mine, answered.by))
            rows += ask.rows

    def _one_by_one(self, asks: list[_Ask]) -> None:
        """Ask again row by row after a batch has failed, so that only who made it fail gets the error."""
        for ask in asks:
            self._answer([ask], *_attempt(self._forward, self._alone(ask)))


def _attempt(forward: Callable[[Batch], ForwardResult], batch: Batch) -> tuple[ForwardResult | None, Exception | None]:
    try:
        return forward(batch), None
    except Exception as error:
        return None, error
