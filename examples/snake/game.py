"""The game of Snake, as a game server would play it: nothing of the arena is imported.

python examples/snake/game.py http://127.0.0.1:8000 [GAMES]

GAMES at the same time, until the run is over, or 50 of each against `arena serve`. Prints the mean of what was eaten.
"""

import http.client
import json
import random
import sys
import threading
import time
import uuid

SIZE = 6
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
eaten = []


class Snake:
    """A board with a snake and something to eat."""

    def __init__(self):
        """Put the snake in the middle."""
        self.snake, self.hungry = [(SIZE // 2, SIZE // 2)], 0
        self.feed()

    def feed(self):
        """Put food where the snake is not."""
        free = [(row, column) for row in range(SIZE) for column in range(SIZE) if (row, column) not in self.snake]
        self.food = random.choice(free)

    def move(self, direction):
        """Return the reward of a move, and whether the game is over."""
        row, column = (at + by for at, by in zip(self.snake[0], MOVES[direction], strict=True))
        self.hungry += 1
        if not (0 <= row < SIZE and 0 <= column < SIZE) or (row, column) in self.snake or self.hungry > 60:
            return -1.0, True
        self.snake.insert(0, (row, column))
        if (row, column) != self.food:
            self.snake.pop()
            return 0.0, False
        self.hungry = 0
        if len(self.snake) == SIZE * SIZE:
            return 1.0, True
        self.feed()
        return 1.0, False


def play(host, games):
    """Play one game after the other."""
    connection = http.client.HTTPConnection(host)

    def step(game, kind, tick, said=None):
        while connection.sock is None:
            try:
                connection.connect()
            except ConnectionRefusedError:
                time.sleep(1)
        headers = {"game_id": game, "step_kind": kind, "tick_id": str(tick)}
        connection.request("POST", "/step", b"" if said is None else json.dumps(said).encode(), headers)
        response = connection.getresponse()
        return response.status, response.read()

    while games != 0:
        game, snake, tick, reward, over = uuid.uuid4().hex, Snake(), 0, 0.0, False
        status, answer = step(game, "start", tick)
        if status == 503 and b"draining" in answer:
            return
        if status != 200:
            time.sleep(1)
            continue
        while not over:
            tick += 1
            said = {"snake": snake.snake, "food": snake.food, "reward": reward}
            status, answer = step(game, "tick", tick, said)
            if status != 200:
                return
            reward, over = snake.move(json.loads(answer)["direction"])
        step(game, "end", tick + 1, {"reward": reward})
        eaten.append(len(snake.snake) - 1)
        games -= 1


if __name__ == "__main__":
    places = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else -1
    threads = [threading.Thread(target=play, args=(sys.argv[1].removeprefix("http://"), rounds)) for _ in range(places)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, last = eaten[:100], eaten[-100:]
    print(f"{len(eaten)} games; eaten {sum(first) / len(first):.2f} in the first 100", end=", ")
    print(f"{sum(last) / len(last):.2f} in the last")
