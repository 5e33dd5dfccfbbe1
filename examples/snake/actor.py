"""The actor of Snake: encodes boards as arrays, calls the model and pushes transitions, in training and in serving."""

import json

import numpy as np

from arena.gateway import Actor, BadRequest

SIZE = 6
DISCOUNT = 0.95


class SnakeActor(Actor):
    """One game. The game sends its board as JSON; the answer is a direction: 0 up, 1 right, 2 down, 3 left."""

    content_type = "application/json"

    def __init__(self, agents, config, game_id, data):
        """Begin a game."""
        self.agent = agents["snake"]
        self.random = np.random.default_rng()
        self.explores = config.get("explores", True)
        self.played = []

    def tick(self, data):
        """Return the direction for a board."""
        said = self.read(data)
        self.reward(said["reward"])
        board = self.image(said)
        outputs = self.agent.remote_model.forward({"board": board})
        logits = outputs["logits"]
        odds = np.exp(logits - logits.max())
        odds /= odds.sum()
        action = int(self.random.choice(4, p=odds)) if self.explores else int(logits.argmax())
        self.played.append({"board": board, "action": np.int64(action), "reward": np.float32(0)})
        return json.dumps({"direction": action}).encode()

    def end(self, data):
        """Push the game's transitions, with the discounted sum of the rewards that followed."""
        if data:
            self.reward(self.read(data)["reward"])
        total = 0.0
        for step in reversed(self.played):
            total = float(step.pop("reward")) + DISCOUNT * total
            step["target"] = np.float32(total)
        self.agent.remote_buffer.push(*self.played)
        return b"{}"

    def reward(self, value):
        """Record the reward of the last direction."""
        if self.played:
            self.played[-1]["reward"] = np.float32(value)
            self.agent.reward(value)

    def image(self, said):
        """Return the board as an array: the head, the body and the food."""
        board = np.zeros((3, SIZE, SIZE), np.float32)
        for plane, cells in enumerate((said["snake"][:1], said["snake"][1:], [said["food"]])):
            for row, column in cells:
                board[plane, row, column] = 1
        return board

    def read(self, data):
        """Return the game's message."""
        try:
            return json.loads(data)
        except ValueError:
            raise BadRequest("expected a JSON object with snake, food and reward") from None
