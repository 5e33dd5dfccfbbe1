"""``POST /step``: requests of games, in the order of the guide's table: the first case that fits responds."""

import re
import time
from collections.abc import Mapping
from typing import Any

from arena.config.gateway import GatewayConfig
from arena.gateway.actors.actor import Actor
from arena.gateway.actors.runner import ActorError, ActorRunner
from arena.gateway.actors.seats import SeatAssigner
from arena.gateway.games.session import Call, Session, replayed
from arena.gateway.games.sessions import Sessions
from arena.gateway.http.request import Request
from arena.gateway.http.responses import Headers, Refusal, Response, shown
from arena.gateway.metrics import Metrics

KINDS = {b"start": "start", b"tick": "tick", b"end": "end", b"stop": "stop", b"auto": "auto"}
WAITING = 4
"""Largest number of requests of a game that wait while another one runs."""

DEFAULT_TYPE = b"application/octet-stream"
MAX_TICK_ID = 2**63 - 1
_GAME_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class Steps:
    """Handles requests of games.

    Attributes:
      sessions: the games.
      runner: calls the actors.
    """

    def __init__(
        self,
        seats: SeatAssigner,
        config: GatewayConfig,
        actor: type[Actor],
        settings: Mapping[str, Any],
        metrics: Metrics,
    ) -> None:
        """Store the arguments.

        Args:
          seats: assigns agents to games.
          config: the limits.
          actor: class of the actors.
          settings: the actors' ``config``.
          metrics: counters of games and failures.
        """
        self._seats, self._config, self._actor, self._settings = seats, config, actor, settings
        self.runner = ActorRunner(config, metrics.actor_errors.inc)
        self._alone = 0  # number of running requests without a session
        self.sessions = Sessions(config, self.runner, seats.seat, metrics.ended)

    async def respond(self, request: Request) -> Response:
        """Return the actor's response.

        Raises:
          Refusal: see the table of the guide "Serve a game".
        """
        kind = _kind_of(request)
        game_id = _game_id_of(request, needed=kind != "auto")
        tick_id = _tick_id_of(request)
        body = await request.body(self._config.max_body)
        if kind == "auto":
            return await self._auto(game_id, body)
        if kind == "start":
            return await self._start(game_id, tick_id, body)
        return await self._go_on(kind, game_id, tick_id, body)

    # Games ------------------------------------------------------------------------------------------------------

    async def _start(self, game_id: str, tick_id: int | None, body: bytes) -> Response:
        session = self.sessions.open.get(game_id)
        if session is not None:
            if tick_id is None or session.start_tick != tick_id:
                raise _already_started(game_id)
            opening = session.find(tick_id, "start")
            if opening is not None:
                return await opening.join()
            return replayed(_answer(session, b"", None))
        before = self.sessions.ended.get(game_id)
        if before is not None:
            _check_stale(before, tick_id)
        session, call = self.sessions.begin(game_id, tick_id), Call(tick_id, "start")
        await session.enter(call)
        return await self._have_turn(session, call, body)

    async def _go_on(self, kind: str, game_id: str, tick_id: int | None, body: bytes) -> Response:
        session = self.sessions.open.get(game_id) or self.sessions.ended.get(game_id)
        if session is None:
            raise _unknown(game_id)
        same = session.find(tick_id, kind)
        if same is not None:
            return await same.join()
        if session.busy and session.waiting >= WAITING:
            text = f"{WAITING} requests of game {game_id!r} wait already"
            raise Refusal(429, "queue_full", text, (b"retry-after", b"1"))
        call = Call(tick_id, kind)
        await session.enter(call)
        return await self._have_turn(session, call, body)

    async def _have_turn(self, session: Session, call: Call, body: bytes) -> Response:
        """Respond to a request that may run, resolve those that have joined it, and leave."""
        answer, error = None, None
        try:
            answer = await self._take_turn(session, call, body)
            return answer
        except BaseException as raised:
            error = raised
            if not isinstance(raised, Refusal):  # a fault of the arena
                session.closing = session.closing or "error"
            raise
        finally:
            if session.closing is not None:
                await self.sessions.close_now(session, session.closing)
            call.resolve(answer, error)
            session.leave(time.monotonic())

    async def _take_turn(self, session: Session, call: Call, body: bytes) -> Response:
        if call.kind == "start":
            answer = await self._build(session, body)
        else:
            last = session.last
            if last is not None and (last.tick_id, last.kind) == (call.tick_id, call.kind):
                return replayed(last.answer)
            if session.failed:
                raise _unknown(session.game_id)
            _check_stale(session, call.tick_id)
            if session.ended is not None:
                raise Refusal(410, "ended", f"game {session.game_id!r} has ended ({session.ended}); start another")
            answer = await (self._tick(session, body) if call.kind == "tick" else self._end(session, call.kind, body))
        session.store(call, answer)
        return answer

    async def _build(self, session: Session, body: bytes) -> Response:
        """Build the actor of a game, or free its place."""
        try:
            session.actor = await self.runner.make(self._actor, session.agents, self._settings, session.game_id, body)
        except BaseException:
            self.sessions.discard(session)
            raise
        session.agents.commit()
        return _answer(session, b"", None)

    async def _tick(self, session: Session, body: bytes) -> Response:
        try:
            value = await self.runner.call(session.actor.tick, body)
        except ActorError as error:
            session.agents.roll_back()
            session.errors += 1
            if session.errors < self._config.max_errors:
                raise
            session.closing = "error"
            raise ActorError(error.status, error.code, f"{error.text}; the game has ended") from None
        except Refusal:
            session.agents.roll_back()
            raise
        session.errors = 0
        session.agents.commit()
        return _answer(session, value, session.actor.content_type)

    async def _end(self, session: Session, kind: Any, body: bytes) -> Response:
        session.agents.ending = kind
        try:
            value = await self.runner.call(session.actor.end, body)
        except ActorError:
            self.sessions.end(session, kind)
            raise
        except Refusal:  # bytes that it cannot read: the game continues
            session.agents.ending = None
            session.agents.roll_back()
            raise
        answer = _answer(session, value, session.actor.content_type)
        self.sessions.end(session, kind)
        return answer

    # Requests without a session ---------------------------------------------------------------------------------

    async def _auto(self, game_id: str, body: bytes) -> Response:
        """Respond to one tick of a game that begins and ends with it."""
        if self._seats.memory is not None:
            raise self._seats.memory.needs_session()
        if self._alone >= self._config.sessions:
            text = f"all {self._config.sessions} places are taken; try again"
            raise Refusal(503, "full", text, (b"retry-after", b"1"))
        session = Session(game_id, -1, self._seats.seat(game_id, -1), None, 0.0)
        self._alone += 1
        try:
            session.actor = await self.runner.make(self._actor, session.agents, self._settings, game_id, b"")
            value = await self.runner.call(session.actor.tick, body)
            return _answer(session, value, session.actor.content_type)
        finally:
            self._alone -= 1
            session.agents.release()


def _answer(session: Session, value: bytes, content_type: str | None) -> Response:
    headers: Headers = ((b"version", session.stamps()),)
    return Response(value, content_type.encode() if value and content_type else DEFAULT_TYPE, headers)


def kind_of(request: Request) -> str:
    """Return the kind of a step for counters, ``other`` if it is invalid."""
    return KINDS.get(request.first(b"step_kind") or b"", "other") if request.path == "/step" else "other"


def _kind_of(request: Request) -> str:
    value = request.header(b"step_kind")
    kind = KINDS.get(value or b"")
    if kind is None:
        raise Refusal(400, "bad_step_kind", f"step_kind: expected start, tick, end, stop or auto, found {shown(value)}")
    return kind


def _game_id_of(request: Request, *, needed: bool) -> str:
    value = request.header(b"game_id")
    if value is None and not needed:
        return ""
    if value is None or not _GAME_ID.fullmatch(value):
        raise Refusal(400, "bad_game_id", f"game_id: expected 1 to 128 of A-Z a-z 0-9 . _ : -, found {shown(value)}")
    return value.decode()


def _tick_id_of(request: Request) -> int | None:
    value = request.header(b"tick_id")
    if value is None:
        return None
    digits = value.lstrip(b"0") or value[-1:]
    if not value.isdigit() or len(digits) > 19 or int(digits) > MAX_TICK_ID:
        text = f"tick_id: expected a whole number of 0 to {MAX_TICK_ID}, found {shown(value)}"
        raise Refusal(400, "bad_tick_id", text)
    return int(digits)


def _check_stale(session: Session, tick_id: int | None) -> None:
    if tick_id is not None and session.greatest is not None and tick_id <= session.greatest:
        text = f"tick_id {tick_id} comes after {session.greatest}, which was answered; each tick needs a greater one"
        raise Refusal(409, "stale_tick", text)


def _already_started(game_id: str) -> Refusal:
    text = f"game {game_id!r} is open already; end it first, or choose another game_id"
    return Refusal(409, "already_started", text)


def _unknown(game_id: str) -> Refusal:
    return Refusal(404, "unknown_game", f"there is no game {game_id!r}; start it first")
