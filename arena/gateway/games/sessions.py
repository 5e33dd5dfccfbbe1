"""All games of a server: places, time limits, and recently ended games."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from arena.config.gateway import GatewayConfig
from arena.gateway.actors.agent import Agents, Ending
from arena.gateway.actors.runner import ActorRunner
from arena.gateway.games.session import Call, Session
from arena.gateway.http.responses import Refusal

logger = logging.getLogger(__name__)

REMEMBERED = 60.0
"""Seconds for which an ended game is remembered."""

SWEEP = 1.0
"""Seconds between two checks of the time limits."""


class Sessions:
    """The games of a server.

    Attributes:
      open: open games by ``game_id``.
      ended: remembered games, oldest first.
      ready: whether games may begin: a server that learns waits for its first weights.
      draining: whether new games are refused.
    """

    def __init__(
        self,
        config: GatewayConfig,
        runner: ActorRunner,
        seat: Callable[[str, int], Agents],
        on_end: Callable[[Ending], None],
    ) -> None:
        """Prepare places.

        Args:
          config: the limits.
          runner: calls the actors.
          seat: (game_id, place) -> the agents of a game.
          on_end: called with the reason of a game's end.
        """
        self._config, self._runner, self._seat, self._on_end = config, runner, seat, on_end
        self._places = list(reversed(range(config.sessions)))
        self.open: dict[str, Session] = {}
        self.ended: OrderedDict[str, Session] = OrderedDict()
        self.ready, self.draining = True, False

    def closed(self) -> Refusal | None:
        """Return the refusal of new games; None if they may begin."""
        if not self.draining:
            text = "no weights have arrived yet; try again"
            return None if self.ready else Refusal(503, "not_ready", text, (b"retry-after", b"1"))
        return Refusal(503, "draining", "the server is closing; no new games", (b"retry-after", b"5"))

    def begin(self, game_id: str, start_tick: int | None) -> Session:
        """Return a new game, with its place.

        Raises:
          Refusal: no place is free, or new games are refused.
        """
        closing = self.closed()
        if closing is not None:
            raise closing
        if not self._places:
            text = f"all {self._config.sessions} places are taken; try again"
            raise Refusal(503, "full", text, (b"retry-after", b"1"))
        place = self._places.pop()
        session = Session(game_id, place, self._seat(game_id, place), start_tick, time.monotonic())
        self.open[game_id] = session
        return session

    def discard(self, session: Session) -> None:
        """Remove a game after its actor could not be built."""
        session.failed = True
        session.agents.release()
        del self.open[session.game_id]
        self._places.append(session.place)

    def end(self, session: Session, ending: Ending) -> None:
        """Record the end of a game and its reason, and free its place."""
        self._on_end(ending)
        session.ended, session.ended_at = self._described_end(ending), time.monotonic()
        session.actor = None
        session.agents.release()
        del self.open[session.game_id]
        self._places.append(session.place)
        self.ended.pop(session.game_id, None)
        self.ended[session.game_id] = session
        while len(self.ended) > self._config.sessions:
            self.ended.popitem(last=False)

    async def close(self, session: Session, ending: Ending) -> None:
        """End a game by decision of the server, after the running request; waiting requests are refused."""
        if session.closing is not None or session.ended is not None:
            return
        session.closing = ending
        if session.busy:
            return  # the running request does it when it leaves
        await session.enter(Call(None, "close"))
        try:
            await self.close_now(session, ending)
        finally:
            session.leave(time.monotonic())

    async def close_now(self, session: Session, ending: Ending) -> None:
        """End a game while the caller's request is the running one."""
        if session.ended is not None or session.failed:
            return
        session.agents.ending = ending
        try:
            await self._runner.call(session.actor.end, b"")
        except Refusal as error:
            logger.warning("game %r ends (%s), and its actor's end has failed: %s", session.game_id, ending, error.text)
        self.end(session, ending)

    def _described_end(self, ending: Ending) -> str:
        config = self._config
        return {
            "idle": f"idle for {config.idle_timeout:g} s",
            "age": f"open for {config.session_timeout:g} s",
            "drain": "the server is closing",
            "error": f"{config.max_errors} errors in a row",
        }.get(ending, f"by {ending}")

    def due(self) -> list[tuple[Session, Ending]]:
        """Return the games at their time limits, and forget those that ended long ago."""
        now, config = time.monotonic(), self._config
        ending: list[tuple[Session, Ending]] = []
        for session in self.open.values():
            if session.closing is not None:
                continue
            if now - session.started > config.session_timeout:
                ending.append((session, "age"))
            elif not session.busy and now - session.answered > config.idle_timeout:
                ending.append((session, "idle"))
        while self.ended and now - next(iter(self.ended.values())).ended_at > REMEMBERED:
            self.ended.popitem(last=False)
        return ending

    async def sweep(self) -> None:
        """Check the time limits until the task is cancelled."""
        closing: set[asyncio.Task[None]] = set()
        while True:
            await asyncio.sleep(SWEEP)
            for session, ending in self.due():
                task = asyncio.get_running_loop().create_task(self.close(session, ending))
                closing.add(task)
                task.add_done_callback(closing.discard)

    async def drain(self, seconds: float) -> None:
        """Refuse new games, wait up to ``seconds`` for open games to finish, then end the remaining ones."""
        self.draining = True
        until = time.monotonic() + seconds
        while self.open and time.monotonic() < until:
            await asyncio.sleep(0.02)
        await asyncio.gather(*(self.close(session, "drain") for session in list(self.open.values())))
        while self.open:  # running calls complete first
            await asyncio.sleep(0.02)
