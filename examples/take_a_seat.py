"""Takes the external seat of a match, and plays at random: the smallest program that plays against the arena.

python examples/take_a_seat.py http://127.0.0.1:8000 [GAMES]

A tick sends an action and returns the next observation. Replace `choose` by a human, an engine or a language model.
"""

import http.client
import json
import random
import sys
import time
import uuid


def choose(seen: dict) -> int:
    """Return an action for an observation: a legal one, at random."""
    return random.choice([action for action, allowed in enumerate(seen["action_mask"]) if allowed])


def wait_for(connection: http.client.HTTPConnection) -> None:
    """Return once the port is open: a run takes some seconds to start."""
    while True:
        try:
            return connection.connect()
        except ConnectionRefusedError:
            time.sleep(1)


def main() -> None:
    """Play games one after the other, and print how each has ended."""
    connection = http.client.HTTPConnection(sys.argv[1].removeprefix("http://"))
    left = int(sys.argv[2]) if len(sys.argv) > 2 else 1

    def step(game: str, kind: str, tick: int, said: dict | None = None) -> tuple[int, dict]:
        if connection.sock is None:
            wait_for(connection)
        headers = {"game_id": game, "step_kind": kind, "tick_id": str(tick)}
        connection.request("POST", "/step", b"" if said is None else json.dumps(said).encode(), headers)
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if body else {}

    while left > 0:
        game, tick = uuid.uuid4().hex, 1
        status, answer = step(game, "start", 0)
        if status == 503 and answer["code"] == "draining":
            break
        if status != 200:  # not ready yet, or no place is free
            time.sleep(1)
            continue
        _, seen = step(game, "tick", tick)  # the first tick says what is seen
        while not (seen["terminated"] or seen["truncated"]):
            tick += 1
            status, seen = step(game, "tick", tick, {"action": choose(seen)})
            if status != 200:
                sys.exit(f"{status}: {seen['error']}")
        _, result = step(game, "end", tick + 1)
        print(f"{seen.get('outcome', 'over')} after {tick} ticks, return {result['return']:g}")
        left -= 1


if __name__ == "__main__":
    main()
