"""The ASGI application: which request goes where, and how answers and refusals leave."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from arena.config.gateway import GatewayConfig
from arena.gateway.actors.actor import Actor
from arena.gateway.actors.json_actor import JsonActor
from arena.gateway.actors.seats import Seats
from arena.gateway.answers import Answer, Refusal, json_answer, shown
from arena.gateway.games.step import Steps
from arena.gateway.inference import Inference
from arena.gateway.models import Model
from arena.gateway.request import Receive, Request, Scope

LAST_WORDS = 0.5
"""Seconds for which the server still answers when the last game has ended: clients want to begin another one."""

NO_SETTINGS: Mapping[str, Any] = {}

logger = logging.getLogger(__name__)

Send = Callable[[dict[str, Any]], Awaitable[None]]
Handler = Callable[[Request], Awaitable[Answer]]


class Gateway:
    """Serves players over HTTP."""

    def __init__(
        self,
        models: Mapping[str, Model],
        seats: Seats,
        config: GatewayConfig,
        actor: type[Actor] = JsonActor,
        settings: Mapping[str, Any] = NO_SETTINGS,
    ) -> None:
        """Prepare to serve.

        Args:
          models: the players by name.
          seats: gives games their agents.
          config: the limits.
          actor: what plays a game.
          settings: what it is given as its ``config``.
        """
        self._models, self._config = models, config
        self._steps = Steps(seats, config, actor, settings)
        self._inference = Inference(models, config.max_body)
        self._routes: dict[str, tuple[str, Handler]] = {
            "/step": ("POST", self._steps.answer),
            "/healthz": ("GET", self._live),
            "/readyz": ("GET", self._ready),
            "/v2": ("GET", self._server),
            "/v2/health/live": ("GET", self._live),
            "/v2/health/ready": ("GET", self._ready_for_inference),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; see the ASGI specification."""
        try:
            answer = await self._answer(Request(scope, receive))
        except Refusal as refusal:
            answer = self._refused(scope, refusal)
        except ConnectionError:  # nobody is there to be answered
            return
        except Exception:
            number = secrets.token_hex(8)
            logger.exception("%s %s failed (%s)", scope["method"], shown(scope["path"]), number)
            answer = Refusal(500, "internal", "the server failed; its log says why").answer(number)
        length = str(len(answer.body)).encode()
        headers = [(b"content-type", answer.content_type), (b"content-length", length), *answer.headers]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, request: Request) -> Answer:
        method, handler = self._route(request.path)
        if request.method != method:
            text = f"expected {method}, found {request.method}"
            raise Refusal(405, "method_not_allowed", text, (b"allow", method.encode()))
        if method == "POST":
            request.check_body(self._config.max_body)
        return await handler(request)

    def _route(self, path: str) -> tuple[str, Handler]:
        """Return the method that a path allows, and what answers it.

        Raises:
          Refusal: there is nothing.
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

    def _of_model(self, name: str, version: str | None, tell: Callable[[Model], Answer]) -> Handler:
        async def answer(request: Request) -> Answer:
            return tell(self._inference.model(name, version))

        return answer

    def _infer(self, name: str, version: str | None) -> Handler:
        async def answer(request: Request) -> Answer:
            return await self._inference.infer(self._inference.model(name, version), request)

        return answer

    async def look_after_games(self) -> None:
        """End games whose time is over, until the task is cancelled."""
        await self._steps.sessions.sweep()

    async def drain(self) -> None:
        """Begin no more games, and return when the last one has ended."""
        await self._steps.sessions.drain(self._config.drain)
        await asyncio.sleep(LAST_WORDS)

    async def _live(self, request: Request) -> Answer:
        return json_answer({"live": True})

    async def _ready(self, request: Request) -> Answer:
        closing = self._steps.sessions.closed()
        if closing is not None:
            return json_answer({"ready": False, "error": closing.text, "code": closing.code}, 503)
        return json_answer({"ready": True, "versions": {name: model.version for name, model in self._models.items()}})

    async def _ready_for_inference(self, request: Request) -> Answer:
        closing = self._steps.sessions.closed()
        return json_answer({"live": True, "ready": closing is None}, 200 if closing is None else 503)

    async def _server(self, request: Request) -> Answer:
        return self._inference.server()

    def _refused(self, scope: Scope, refusal: Refusal) -> Answer:
        number = secrets.token_hex(8)
        level = logging.ERROR if refusal.status >= 500 and refusal.status != 503 else logging.INFO
        path = shown(scope["path"])
        logger.log(level, "%s %s: %d %s (%s)", scope["method"], path, refusal.status, refusal.text, number)
        return refusal.answer(number)
