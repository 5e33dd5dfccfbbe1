"""The ASGI application: routing, access checks, and the sending of responses and refusals."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from arena.common.errors import GivenUpError
from arena.config.gateway import GatewayConfig
from arena.gateway.actors.actor import Actor
from arena.gateway.actors.json_actor import JsonActor
from arena.gateway.actors.seats import SeatAssigner
from arena.gateway.games.step import Steps, kind_of
from arena.gateway.http.access import Access
from arena.gateway.http.inference import Inference
from arena.gateway.http.loop_watchdog import LoopWatchdog
from arena.gateway.http.request import UNKNOWN, WHOLE_ANSWER, Receive, Request, Scope
from arena.gateway.http.responses import Refusal, Response, json_response, shown
from arena.gateway.metrics import Levels, Metrics
from arena.gateway.models import Model
from arena.gateway.players import Player
from arena.gateway.workers.peers import Peers

LAST_WORDS = 0.5
"""Seconds for which the server still responds after the last game: clients may begin another one."""

NO_SETTINGS: Mapping[str, Any] = {}
NOBODY = Access()
WITHOUT_TOKEN = frozenset(("/healthz", "/readyz"))
PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"

logger = logging.getLogger(__name__)
access_logger = logging.getLogger("arena.access")

Send = Callable[[dict[str, Any]], Awaitable[None]]
Handler = Callable[[Request], Awaitable[Response]]


class Gateway:
    """Serves players over HTTP.

    Attributes:
      metrics: counters.
      background: other tasks that run while it serves.
      connections: number of open connections, reported by the HTTP server.
      versions: newest version of each player.
    """

    def __init__(
        self,
        players: Mapping[str, Player],
        seats: SeatAssigner,
        config: GatewayConfig,
        actor: type[Actor] = JsonActor,
        settings: Mapping[str, Any] = NO_SETTINGS,
        access: Access = NOBODY,
        peers: Peers | None = None,
    ) -> None:
        """Prepare to serve.

        Args:
          players: players by name.
          seats: assigns agents to games.
          config: the limits.
          actor: class of the actors.
          settings: the actors' ``config``.
          access: access checks.
          peers: the other processes of this server; None if there are none.
        """
        self._peers = peers
        self._players, self._config, self._access = players, config, access
        self.metrics = Metrics(players, config.sessions, self._levels)
        self._steps = Steps(seats, config, actor, settings, self.metrics)
        self._inference = Inference(players, config.max_body)
        self._lag = 0.0
        self.background: list[Callable[[], Awaitable[None]]] = [self._watch]
        self.connections: Callable[[], int] = lambda: 0
        self.versions: Callable[[], dict[str, str]] = lambda: {
            name: player.newest.version for name, player in players.items()
        }
        self._routes: dict[str, tuple[str, Handler]] = {
            "/step": ("POST", self._steps.respond if peers is None else self._step),
            "/healthz": ("GET", self._live),
            "/readyz": ("GET", self._ready),
            "/metrics": ("GET", self._count),
            "/v2": ("GET", self._server),
            "/v2/health/live": ("GET", self._live),
            "/v2/health/ready": ("GET", self._ready_for_inference),
        }

    # Requests ---------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request as in the ASGI specification, but send responses whole (``WHOLE_ANSWER``)."""
        began, number, request = time.perf_counter(), "", Request(scope, receive)
        try:
            answer = await self._answer(request)
        except Refusal as refusal:
            number = secrets.token_hex(8)
            if refusal.status >= 500 and refusal.status != 503:
                logger.error("%s %s: %d %s (%s)", request.method, request.path, refusal.status, refusal.text, number)
            answer = refusal.response(number)
        except ConnectionError:  # the client has disconnected
            return
        except GivenUpError as error:  # the message is complete
            number = secrets.token_hex(8)
            logger.error("%s %s has failed (%s): %s", request.method, shown(request.path), number, error)
            answer = Refusal(500, "internal", "the server failed; its log says why").response(number)
        except Exception:
            number = secrets.token_hex(8)
            logger.exception("%s %s has failed (%s)", request.method, shown(request.path), number)
            answer = Refusal(500, "internal", "the server failed; its log says why").response(number)
        headers = [(b"content-length", b"%d" % len(answer.body)), *answer.headers]
        origin = request.first(b"origin")
        if origin is not None:
            headers += self._access.headers(origin)
        if answer.status != 204:
            headers.append((b"content-type", answer.content_type))
        self._note(request, answer, time.perf_counter() - began, number)
        await scope.pop(WHOLE_ANSWER)(answer.status, headers, answer.body)

    def _note(self, request: Request, answer: Response, seconds: float, number: str) -> None:
        kind = kind_of(request)
        if not answer.handed_on:
            self._add(kind, answer, seconds)
        if self._config.access_log and request.client != UNKNOWN:  # a process that forwards a request logs it itself
            line = (
                f"{request.client} {request.method} {shown(request.path)[1:-1]} {answer.status} {seconds * 1000:.1f} ms"
            )
            access_logger.info("%s %s%s", line, kind, number and f" {number}")

    def _add(self, kind: str, answer: Response, seconds: float) -> None:
        self.metrics.request(kind, answer.status)
        if kind == "tick":
            self.metrics.ticks.observe(seconds)
        if answer.replayed:
            self.metrics.replayed.inc()

    async def _step(self, request: Request) -> Response:
        """Respond to a request of a game, or forward it to the process that owns the game."""
        assert self._peers is not None
        game_id = request.header(b"game_id")
        owner = None if game_id is None or kind_of(request) == "auto" else self._peers.owner(game_id)
        if owner is None:
            return await self._steps.respond(request)
        return await self._peers.step(owner, request, self._config.max_body)

    async def _answer(self, request: Request) -> Response:
        method, handler = self._route(request.path)
        if request.method != method:
            preflight = self._access.preflight(request, method)
            if preflight is not None:
                return preflight
            text = f"expected {method}, found {request.method}"
            raise Refusal(405, "method_not_allowed", text, (b"allow", method.encode()))
        if request.path not in WITHOUT_TOKEN:
            self._access.check(request)
        if method == "POST":
            request.check_body(self._config.max_body)
        return await handler(request)

    def _route(self, path: str) -> tuple[str, Handler]:
        """Return the method that a path allows, and its handler.

        Raises:
          Refusal: there is none.
        """
        known = self._routes.get(path)
        if known is not None:
            return known
        match path.split("/")[1:]:
            case ["v2", "models", name, *rest]:
                version = None
                if len(rest) > 1 and rest[0] == "versions":
                    version, rest = rest[1], rest[2:]
                match rest:
                    case []:
                        return "GET", self._of_model(name, version, self._inference.describe)
                    case ["ready"]:
                        return "GET", self._of_model(name, version, self._inference.ready)
                    case ["infer"]:
                        return "POST", self._infer(name, version)
        raise Refusal(404, "not_found", f"there is nothing at {shown(path)}")

    def _of_model(self, name: str, version: str | None, tell: Callable[[Model], Response]) -> Handler:
        async def answer(request: Request) -> Response:
            return tell(self._inference.model(name, version))

        return answer

    def _infer(self, name: str, version: str | None) -> Handler:
        async def answer(request: Request) -> Response:
            return await self._inference.infer(self._inference.model(name, version), request)

        return answer

    # The server itself ------------------------------------------------------------------------------------------

    def learns(self, is_held: Callable[[], bool]) -> None:
        """Mark this server as learning: it is not ready before ``open`` is called, and calls wait while it is held."""
        self._steps.runner.is_held = is_held
        self._steps.sessions.ready = False

    def open(self) -> None:
        """Allow games to begin."""
        self._steps.sessions.ready = True

    async def run_maintenance(self) -> None:
        """End games at their time limits, and run background tasks, until the task is cancelled."""
        await asyncio.gather(self._steps.sessions.sweep(), *(begin() for begin in self.background))

    async def _watch(self) -> None:
        loop, watch = asyncio.get_running_loop(), LoopWatchdog()
        try:
            while True:
                worst = 0.0
                for _ in range(20):
                    due = loop.time() + 0.05
                    await asyncio.sleep(0.05)
                    watch.beat()
                    worst = max(worst, loop.time() - due)
                self._lag = worst
        finally:
            watch.close()

    async def drain(self) -> None:
        """Refuse new games, and return when the last one has ended."""
        began = time.monotonic()
        await self._steps.sessions.drain(self._config.drain)
        if self._peers is not None:
            await self._peers.all_drained(max(0.0, began + self._config.drain - time.monotonic()))
        await asyncio.sleep(LAST_WORDS)

    def _levels(self) -> Levels:
        return Levels(len(self._steps.sessions.open), self.connections(), self._lag)

    async def _live(self, request: Request) -> Response:
        return json_response({"live": True})

    async def _ready(self, request: Request) -> Response:
        closing = self._steps.sessions.closed()
        if closing is not None:
            return json_response({"ready": False, "error": closing.text, "code": closing.code}, 503)
        return json_response({"ready": True, "versions": self.versions()})

    async def _ready_for_inference(self, request: Request) -> Response:
        closing = self._steps.sessions.closed()
        return json_response({"live": True, "ready": closing is None}, 200 if closing is None else 503)

    async def _count(self, request: Request) -> Response:
        own = self.metrics.text()
        if self._peers is None or request.client == UNKNOWN:
            return Response(own, PROMETHEUS)
        return Response(await self._peers.metrics(request, own), PROMETHEUS)

    async def _server(self, request: Request) -> Response:
        return self._inference.server()
