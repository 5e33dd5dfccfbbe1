"""The model of Snake and its trainer: an actor-critic that learns from the returns of whole games."""

import torch
from torch import nn

SIZE = 6


class SnakeModel(nn.Module):
    """Network for the logits of the directions and the value of the board."""

    def __init__(self, width):
        """Build two layers."""
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(), nn.Linear(3 * SIZE * SIZE, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.logits, self.value = nn.Linear(width, 4), nn.Linear(width, 1)

    def forward(self, inputs):
        """Return logits ``[N, 4]`` and values ``[N]`` of boards ``[N, 3, SIZE, SIZE]``."""
        seen = self.body(inputs["board"])
        return {"logits": self.logits(seen), "value": self.value(seen).squeeze(-1)}


class SnakeTrainer:
    """Advantage actor-critic."""

    @classmethod
    def make_model(cls, width=128, **_):
        """Return the model that the actor calls."""
        return SnakeModel(width)

    def __init__(self, model, buffer, group, learning_rate=1e-3, entropy=0.02, **_):
        """Prepare to learn."""
        self.model, self.buffer, self.group, self.entropy = model, buffer, group, entropy
        self.optimizer = torch.optim.Adam(model.parameters(), learning_rate)

    def train(self):
        """Take a gradient step for each batch of the buffer."""
        for batch in self.buffer:
            batch = {name: torch.from_numpy(array) for name, array in batch.items()}
            said = self.model({"board": batch["board"]})
            odds = torch.distributions.Categorical(logits=said["logits"])
            advantage = batch["target"] - said["value"].detach()
            policy = -(odds.log_prob(batch["action"]) * advantage).mean()
            value = (batch["target"] - said["value"]).square().mean()
            loss = policy + 0.5 * value - self.entropy * odds.entropy().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.group.average_gradients(self.model)
            self.optimizer.step()
            yield {"loss/policy": policy.item(), "loss/value": value.item()}
