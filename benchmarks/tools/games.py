"""Client of external games: copies of a Gymnasium environment that are played over HTTP, as JSON."""

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from arena.gateway.client import Address, Connection, Reply

RETRY = 0.2
"""Seconds after which a rejected game is tried again."""


class Games:
    """Plays games one after the other, several at once, until the server accepts no more.

    Attributes:
      returns: of the episodes that have ended, in their order.
      ticks: that were answered.
      games, vanished: that have begun, and of these those that have vanished.
      statuses: of all answers.
      refusals: the codes of those that were none.
    """

    def __init__(
        self,
        url: str,
        make: Callable[[], gymnasium.Env],
        *,
        kill: float = 0.0,
        seed: int = 1,
        ticks: int | None = None,
    ) -> None:
        """Prepare to play.

        Args:
          url: of the server.
          make: makes an environment.
          kill: probability that a game vanishes before a tick, without a word.
          seed: of the environments, and of the games that vanish.
          ticks: ticks after which no more games begin; None plays until the server closes.
        """
        self._address, self._make, self._kill, self._seed, self._limit = Address.of(url), make, kill, seed, ticks
        self._random = random.Random(seed)
        self.returns: list[float] = []
        self.ticks = self.games = self.vanished = 0
        self.statuses: Counter[int] = Counter()
        self.refusals: Counter[str] = Counter()
        self._closed = False

    async def play(self, places: int) -> None:
        """Play in ``places`` lanes at once."""
        await asyncio.gather(*(self._place(number) for number in range(places)))

    async def _place(self, number: int) -> None:
        connection, env, count = Connection(self._address), self._make(), 0
        name = f"{self._random.getrandbits(32):x}-{number}"
        while not self._closed and (self._limit is None or self.ticks < self._limit):
            seed = self._seed * 1000 + number if count == 0 else None
            begun = await self._ask(connection, f"{name}-{count}", "start", 0)
            if begun.status == 200:
                await self._game(connection, env, f"{name}-{count}", seed)
                count += 1
            elif begun.status == 0 or b"draining" in begun.body:
                self._closed = True
            else:
                await asyncio.sleep(RETRY)
        connection.break_off()
        env.close()

    async def _game(self, connection: Connection, env: gymnasium.Env, game_id: str, seed: int | None) -> None:
        self.games += 1
        observation, _ = env.reset(seed=seed)
        reward, total, tick, over, cut = 0.0, 0.0, 1, False, False
        while not (over or cut):
            if self._kill and self._random.random() < self._kill:
                self.vanished += 1
                body = _written({"observation": observation.tolist(), "reward": reward})
                await connection.post_and_disconnect("/step", _step(game_id, "tick", tick), body)
                return
            said = {"observation": observation.tolist(), "reward": reward}
            answer = await self._ask(connection, game_id, "tick", tick, said)
            if answer.status != 200:
                self._closed = self._closed or answer.status in (0, 500)
                return
            self.ticks, tick = self.ticks + 1, tick + 1
            observation, earned, over, cut, _ = env.step(np.asarray(json.loads(answer.body)["action"]))
            reward = float(earned)
            total += reward
        end: dict[str, Any] = {"reward": reward, "terminated": bool(over)}
        await self._ask(connection, game_id, "end", tick, end if over else {**end, "observation": observation.tolist()})
        self.returns.append(total)

    async def _ask(self, connection: Connection, game_id: str, kind: str, tick: int, said: Any = None) -> Reply:
        body = b"" if said is None else _written(said)
        answer = await connection.post("/step", _step(game_id, kind, tick), body)
        self.statuses[answer.status] += 1
        if answer.status not in (0, 200):
            self.refusals[json.loads(answer.body)["code"]] += 1
        return answer


def _step(game_id: str, kind: str, tick: int) -> dict[str, str]:
    return {"game_id": game_id, "step_kind": kind, "tick_id": str(tick)}


def _written(said: Any) -> bytes:
    return json.dumps(said).encode()


def main(argv: list[str]) -> None:
    """Play an environment in some places: URL, name of the environment, number of places, and KILL if games vanish."""
    url, name, places = argv[0], argv[1], int(argv[2])
    games = Games(url, lambda: gymnasium.make(name), kill=float(argv[3]) if len(argv) > 3 else 0.0)
    asyncio.run(games.play(places))
    last = np.mean(games.returns[-20:] or [0.0])
    told = ", ".join(f"{status or 'no answer'}: {count:,}" for status, count in sorted(games.statuses.items()))
    print(f"games     {games.games:,} ({games.vanished:,} vanished), {games.ticks:,} ticks")
    print(f"statuses  {told}")
    print(f"returns   {last:.1f}, mean of the last 20")


if __name__ == "__main__":
    main(sys.argv[1:])
