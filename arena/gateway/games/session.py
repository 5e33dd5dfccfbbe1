"""One game: its actor, who has its turn, the last answer for retries, and how it has ended."""

import asyncio
from collections import deque
from typing import Any, NamedTuple

from arena.gateway.actors.agent import Agents, Ending
from arena.gateway.answers import Answer, Headers

REPLAYED: Headers = ((b"replayed", b"1"),)


class Stored(NamedTuple):
    """An answer that is sent again where its request comes again.

    Attributes:
      tick_id, kind: of the request.
      answer: to it.
    """

    tick_id: int
    kind: str
    answer: Answer


class Call:
    """A request of a game that runs, or waits for its turn."""

    def __init__(self, tick_id: int | None, kind: str) -> None:
        """Note what is asked."""
        self.tick_id, self.kind = tick_id, kind
        self.turn: asyncio.Future[None] | None = None
        self._joined: list[asyncio.Future[Answer]] = []

    async def join(self) -> Answer:
        """Wait for the answer to the same request, and return it as one that is sent again.

        Raises:
          Refusal: the request was refused.
        """
        told: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._joined.append(told)
        return replayed(await told)

    def tell(self, answer: Answer | None, error: BaseException | None) -> None:
        """Tell those who have joined."""
        for told in self._joined:
            if told.done():
                continue
            if answer is not None:
                told.set_result(answer)
            else:
                told.set_exception(
                    error if isinstance(error, Exception) else ConnectionError("the connection to the game was closed")
                )


def replayed(answer: Answer) -> Answer:
    """Return an answer as one that is sent again."""
    return answer._replace(headers=answer.headers + REPLAYED, replayed=True)


class Session:
    """One game.

    Attributes:
      game_id: what its client calls it.
      place: among those that can be open at once; its agents' memories lie there.
      agents: by name.
      actor: None until it is built.
      start_tick: the ``tick_id`` of its start, if it had one.
      started: when it began, by ``time.monotonic``.
      answered: when it last answered.
      last: the last answer with 200, for its retry.
      greatest: the greatest ``tick_id`` that was answered with 200.
      errors: of the actor, in a row.
      closing: why the server ends it; None where it does not.
      ended: how it has ended, as clients are told; None while it is open.
      ended_at: when.
      failed: whether its actor could never be built.
    """

    def __init__(self, game_id: str, place: int, agents: Agents, start_tick: int | None, now: float) -> None:
        """Begin it."""
        self.game_id, self.place, self.agents = game_id, place, agents
        self.actor: Any = None
        self.start_tick = start_tick
        self.started = self.answered = now
        self.last: Stored | None = None
        self.greatest: int | None = None
        self.errors = 0
        self.closing: Ending | None = None
        self.ended: str | None = None
        self.ended_at = 0.0
        self.failed = False
        self._running: Call | None = None
        self._waiting: deque[Call] = deque()

    @property
    def busy(self) -> bool:
        """Whether a request runs."""
        return self._running is not None

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return len(self._waiting)

    def find(self, tick_id: int | None, kind: str) -> Call | None:
        """Return the request with this id and kind that runs or waits."""
        if tick_id is None:
            return None
        calls = self._waiting if self._running is None else (self._running, *self._waiting)
        return next((call for call in calls if call.tick_id == tick_id and call.kind == kind), None)

    async def enter(self, call: Call) -> None:
        """Return when the turn has come; ``leave`` must follow."""
        if self._running is None:
            self._running = call
            return
        call.turn = asyncio.get_running_loop().create_future()
        self._waiting.append(call)
        await call.turn

    def leave(self, now: float) -> None:
        """Give the turn to the next one."""
        self.answered = now
        self._running = None
        while self._waiting:
            call = self._waiting.popleft()
            assert call.turn is not None
            if not call.turn.done():
                self._running = call
                call.turn.set_result(None)
                return

    def store(self, call: Call, answer: Answer) -> None:
        """Keep an answer with 200 for the request's retry."""
        if call.tick_id is None:
            self.last = None
            return
        self.last = Stored(call.tick_id, call.kind, answer)
        self.greatest = call.tick_id

    def stamps(self) -> bytes:
        """Return the versions of its players, as answers are marked."""
        stamps = [agent.stamp for agent in self.agents.values()]
        return stamps[0] if len(stamps) == 1 else b",".join(dict.fromkeys(stamps))
