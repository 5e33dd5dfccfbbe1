"""Batches of forward passes: all requests of one turn of the event loop are computed in one of them.

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
      lanes: ``[N]``, index of each row's recurrent state; None for a feed-forward player.
    """

    observations: Tree
    masks: np.ndarray | None
    starts: np.ndarray
    lanes: np.ndarray | None


class ForwardResult(NamedTuple):
    """Outputs of one forward pass for a range of rows.

    Attributes:
      rows: arrays ``[N, ...]``.
      by: producer: the version of the weights.
    """

    rows: Tree
    by: str


class _Query(NamedTuple):
    rows: int
    observations: Tree
    masks: np.ndarray | None
    start: bool
    lane: int
    answer: "asyncio.Future[ForwardResult]"


class Batcher:
    """Collects requests and computes them batch by batch, in order.

    Attributes:
      waiting: number of rows that wait for a forward pass.
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
          forward: the forward pass: a batch in, new arrays ``[N, ...]`` out.
          observations: arrays ``[max_batch, ...]`` for the batches; a request with more rows is computed in a pass of
            its own.
          flags: size of a row's action mask, 0 for none.
          memory: whether rows have lanes.
          max_wait: seconds that a batch waits to become full; 0 for no wait.
          executor: a thread for passes that would block the event loop; None runs them in the loop.
        """
        self._forward, self._executor, self._max_wait = forward, executor, max_wait
        self._observations = observations
        max_batch = self._max_batch = len(tree_leaves(observations)[0])
        self._masks = np.ones((max_batch, flags), np.int8) if flags else None
        self._starts = np.zeros(max_batch, bool)
        self._lanes = np.zeros(max_batch, np.int64) if memory else None
        self._asked: deque[_Query] = deque()
        self._flush: asyncio.Handle | None = None
        self._running = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.waiting = 0

    def request(
        self, observations: Tree, masks: np.ndarray | None = None, *, rows: int = 1, start: bool = True, lane: int = -1
    ) -> "asyncio.Future[ForwardResult]":
        """Request the forward pass of some rows; must be called in the event loop.

        Args:
          observations: ``[rows, ...]``, checked: in the dtypes of the space and finite. They are not copied, so the
            caller must not change them.
          masks: ``[rows, flags]``; None allows everything.
          rows: number of rows.
          start: whether they are the first of an episode.
          lane: index of the row's recurrent state, for a recurrent player.
        """
        loop = self._loop
        if loop is None or loop.is_closed():  # looking up the running loop costs a system call
            loop = self._loop = asyncio.get_running_loop()
        answer: asyncio.Future[Tree] = loop.create_future()
        self._asked.append(_Query(rows, observations, masks, start, lane, answer))
        self.waiting += rows
        if self._running:
            return answer
        if self.waiting >= self._max_batch:
            self._cancel()
            self._run()
        elif self._flush is None:
            # Two steps of the loop: in the first one the other readable connections make their requests, too.
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
        """Compute what waits: all of it in the loop, or a batch in the thread, which then continues."""
        self._flush = None
        while self._asked:
            queries, batch = self._next()
            if self._executor is None:
                self._answer(queries, *_attempt(self._forward, batch))
                continue
            self._running = True
            assert self._loop is not None
            done = self._loop.run_in_executor(self._executor, _attempt, self._forward, batch)
            done.add_done_callback(lambda future, queries=queries: self._resume(queries, future))  # type: ignore[misc]
            return

    def _resume(
        self, queries: list[_Query], future: "asyncio.Future[tuple[ForwardResult | None, Exception | None]]"
    ) -> None:
        self._running = False
        if not future.cancelled():
            self._answer(queries, *future.result())
        self._run()

    def _next(self) -> tuple[list[_Query], Batch]:
        """Remove the requests of the next batch, and lay their rows out."""
        queries, rows = [self._asked.popleft()], 0
        total = queries[0].rows
        while self._asked and total + self._asked[0].rows <= self._max_batch:
            queries.append(self._asked.popleft())
            total += queries[-1].rows
        self.waiting -= total
        if total > self._max_batch:
            return queries, self._alone(queries[0])
        for query in queries:
            where = slice(rows, rows + query.rows)
            put(self._observations, where, query.observations)
            if self._masks is not None:
                self._masks[where] = 1 if query.masks is None else query.masks
            self._starts[where] = query.start
            if self._lanes is not None:
                self._lanes[where] = query.lane
            rows += query.rows
        return queries, Batch(
            map_tree(lambda leaf: leaf[:rows], self._observations),
            None if self._masks is None else self._masks[:rows],
            self._starts[:rows],
            None if self._lanes is None else self._lanes[:rows],
        )

    def _alone(self, query: _Query) -> Batch:
        masks = query.masks
        if masks is None and self._masks is not None:
            masks = np.ones((query.rows, self._masks.shape[1]), np.int8)
        lanes = None if self._lanes is None else np.full(query.rows, query.lane)
        return Batch(query.observations, masks, np.full(query.rows, query.start), lanes)

    def _answer(self, queries: list[_Query], result: ForwardResult | None, error: Exception | None) -> None:
        if error is not None and len(queries) > 1:
            self._one_by_one(queries)
            return
        rows = 0
        for query in queries:
            if query.answer.cancelled():
                pass
            elif result is None:
                query.answer.set_exception(error or RuntimeError("the forward pass has returned no actions"))
            else:
                part = slice(rows, rows + query.rows)
                own_rows = map_tree(lambda leaf, part=part: leaf[part], result.rows)
                query.answer.set_result(ForwardResult(own_rows, result.by))
            rows += query.rows

    def _one_by_one(self, queries: list[_Query]) -> None:
        """Compute row by row after a batch has failed, so that only the faulty request gets the error."""
        for query in queries:
            self._answer([query], *_attempt(self._forward, self._alone(query)))


def _attempt(forward: Callable[[Batch], ForwardResult], batch: Batch) -> tuple[ForwardResult | None, Exception | None]:
    try:
        return forward(batch), None
    except Exception as error:
        return None, error
