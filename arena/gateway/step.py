"""``POST /step``: requests of games."""

import re
from collections.abc import Mapping

from arena.config.gateway import GatewayConfig
from arena.gateway.agent import Agent, Agents
from arena.gateway.answers import Answer, BadRequest, Refusal, shown
from arena.gateway.json_actor import JsonActor
from arena.gateway.models import Model
from arena.gateway.request import Request

_GAME_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class Steps:
    """Answers requests of games."""

    def __init__(self, models: Mapping[str, Model], config: GatewayConfig) -> None:
        """Prepare to answer.

        Args:
          models: the players by name, each of which is an agent of every game.
          config: the limits.
        """
        self._models, self._config = models, config
        self._alone = 0  # requests for a lone answer that are under way

    async def answer(self, request: Request) -> Answer:
        """Return the actor's answer.

        Raises:
          Refusal: see the table of the guide "Serve a game".
        """
        kind = request.header(b"step_kind")
        if kind != b"auto":
            raise Refusal(400, "bad_step_kind", f"step_kind: expected auto, found {shown(kind)}")
        game_id = request.header(b"game_id")
        if game_id is not None and not _GAME_ID.fullmatch(game_id):
            text = f"game_id: expected 1 to 128 of A-Z a-z 0-9 . _ : -, found {shown(game_id)}"
            raise Refusal(400, "bad_game_id", text)
        body = await request.body(self._config.max_body)
        return await self._auto("" if game_id is None else game_id.decode(), body)

    async def _auto(self, game_id: str, body: bytes) -> Answer:
        """Answer one tick of a game that begins and ends with it."""
        for model in self._models.values():
            if model.memory:
                text = f"player {model.name!r} has a memory: ask it in a session (start, tick, end)"
                raise Refusal(400, "needs_session", text)
        if self._alone >= self._config.sessions:
            text = f"all {self._config.sessions} places are taken; try again"
            raise Refusal(503, "full", text, (b"retry-after", b"1"))
        self._alone += 1
        try:
            agents = Agents({name: Agent(name, model) for name, model in self._models.items()}, game_id)
            actor = JsonActor(agents, {}, game_id, b"")
            said = await actor.tick(body)
        except BadRequest as error:
            raise Refusal(400, "bad_body", str(error)) from None
        finally:
            self._alone -= 1
        stamp = ",".join(dict.fromkeys(agent.stamp for agent in agents.values()))
        return Answer(said, actor.content_type.encode(), ((b"version", stamp.encode()),))
