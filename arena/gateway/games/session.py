"""One game: its actor, its queue of requests, the last response for retries, and its end."""

import asyncio
from collections import deque
from typing import Any, NamedTuple

from arena.gateway.actors.agent import Agents, Ending
from arena.gateway.http.responses import Headers, Response

REPLAYED: Headers = ((b"replayed", b"1"),)


class Stored(NamedTuple):
    """A response that is sent again for a retry of its request.

    Attributes:
      tick_id, kind: of the request.
      answer: the response.
    """

    tick_id: int
    kind: str
    answer: Response


class Call:
    """A request of a game that runs, or waits in the game's queue."""

    def __init__(self, tick_id: int | None, kind: str) -> None:
        """Store the identity of the request."""
        self.tick_id, self.kind = tick_id, kind
        self.turn: asyncio.Future[None] | None = None
        self._joined: list[asyncio.Future[Response]] = []

    async def join(self) -> Response:
        """Wait for the response to the same request, and return it as a replayed one.

        Raises:
          Refusal: the request was refused.
        """
        response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._joined.append(response)
        return replayed(await response)

    def resolve(self, answer: Response | None, error: BaseException | None) -> None:
        """Resolve the requests that have joined this one."""
        for waiting in self._joined:
            if waiting.done():
                continue
            if answer is not None:
                waiting.set_result(answer)
            else:
                waiting.set_exception(
                    error if isinstance(error, Exception) else ConnectionError("the connection to the game was closed")
                )


def replayed(answer: Response) -> Response:
    """Return a response as a replayed one."""
    return answer._replace(headers=answer.headers + REPLAYED, replayed=True)


class Session:
    """One game.

    Attributes:
      game_id: the client's id of the game.
      place: index among the games that can be open; identifies its agents' recurrent states.
      agents: agents by name.
      actor: None until it is built.
      start_tick: ``tick_id`` of its start, if it had one.
      started: time of its start, by ``time.monotonic``.
      answered: time of its last response.
      last: last response with status 200, for its retry.
      greatest: greatest ``tick_id`` with a response of status 200.
      errors: number of consecutive errors of the actor.
      closing: reason for which the server ends it; None otherwise.
      ended: description of the end for clients; None while the game is open.
      ended_at: time of the end.
      failed: whether its actor could never be built.
    """

    def __init__(self, game_id: str, place: int, agents: Agents, start_tick: int | None, now: float) -> None:
        """Begin the game."""
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
        """Number of requests in the queue."""
        return len(self._waiting)

    def find(self, tick_id: int | None, kind: str) -> Call | None:
        """Return the running or queued request with this id and kind."""
        if tick_id is None:
            return None
        calls = self._waiting if self._running is None else (self._running, *self._waiting)
        return next((call for call in calls if call.tick_id == tick_id and call.kind == kind), None)

    async def enter(self, call: Call) -> None:
        """Return when the request may run; ``leave`` must follow."""
        if self._running is None:
            self._running = call
            return
        call.turn = asyncio.get_running_loop().create_future()
        self._waiting.append(call)
        await call.turn

    def leave(self, now: float) -> None:
        """Let the next request run."""
        self.answered = now
        self._running = None
        while self._waiting:
            call = self._waiting.popleft()
            assert call.turn is not None
            if not call.turn.done():
                self._running = call
                call.turn.set_result(None)
                return

    def store(self, call: Call, answer: Response) -> None:
        """Keep a response with status 200 for the request's retry."""
        if call.tick_id is None:
            self.last = None
            return
        self.last = Stored(call.tick_id, call.kind, answer)
        self.greatest = call.tick_id

    def stamps(self) -> bytes:
        """Return the versions of its players, the mark of responses."""
        stamps = [agent.stamp for agent in self.agents.values()]
        return stamps[0] if len(stamps) == 1 else b",".join(dict.fromkeys(stamps))
