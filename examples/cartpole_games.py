"""Plays CartPole against a gateway, as a game outside would: the rewards go with each tick, the actions come back.

python examples/cartpole_games.py http://127.0.0.1:8000 [GAMES]

It imports nothing of the arena. While a run learns, it plays until the run is over; against `arena serve` it plays
until Ctrl-C.
"""

import http.client
import json
import sys
import threading
import time
import uuid
from collections.abc import Callable

import gymnasium


def play(host: str, make: Callable[[], gymnasium.Env]) -> None:
    """Play one game after the other until the run is over."""
    connection, env = http.client.HTTPConnection(host), make()

    def step(game: str, kind: str, tick: int, said: dict | None = None) -> tuple[int, dict]:
        if connection.sock is None:
            wait_for(connection)
        headers = {"game_id": game, "step_kind": kind, "tick_id": str(tick)}
        connection.request("POST", "/step", b"" if said is None else json.dumps(said).encode(), headers)
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if body else {}

    while True:
        game, tick, total = uuid.uuid4().hex, 0, 0.0
        status, answer = step(game, "start", tick)
        if status == 503 and answer["code"] == "draining":
            return
        if status != 200:  # not ready yet, or no place is free
            time.sleep(1)
            continue
        (observation, _), reward, over, cut = env.reset(), 0.0, False, False
        while not (over or cut):
            tick += 1
            status, answer = step(game, "tick", tick, {"observation": observation.tolist(), "reward": reward})
            if status != 200:
                return
            observation, reward, over, cut, _ = env.step(answer["action"])
            reward = float(reward)
            total += reward
        last = {"reward": reward, "terminated": over} | ({} if over else {"observation": observation.tolist()})
        step(game, "end", tick + 1, last)
        print(f"{total:.0f}", end=" ", flush=True)


def wait_for(connection: http.client.HTTPConnection) -> None:
    """Return once the port is open: a run takes some seconds to start."""
    while True:
        try:
            return connection.connect()
        except ConnectionRefusedError:
            time.sleep(1)


def play_games(make: Callable[[], gymnasium.Env], games: int) -> None:
    """Play several games at once, each in a thread, against the address on the command line."""
    host, games = sys.argv[1].removeprefix("http://"), int(sys.argv[2]) if len(sys.argv) > 2 else games
    threads = [threading.Thread(target=play, args=(host, make), daemon=True) for _ in range(games)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print()


if __name__ == "__main__":
    play_games(lambda: gymnasium.make("CartPole-v1"), 4)
