"""Games whose observations identify their origin, and a policy that records what it is given to learn from."""

import itertools
import random
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pydantic import BaseModel

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Decision, Rollout

OBSERVATION = spaces.Box(0, 2**40, (2,), np.int64)
ACTION = spaces.Discrete(1000)
_numbers = itertools.count(1)


def action_for(game: Any, tick: Any) -> Any:
    """Return the action that belongs to a tick of a game, or to arrays of them."""
    return (game * 31 + tick * 7) % 1000


def reward_of(game: Any, tick: Any) -> Any:
    """Return the reward of a tick's action."""
    return (game % 89) + (tick % 13) / 16


class Counting(gymnasium.Env):
    """A game that counts its ticks: an observation is the game's unique number and the tick's number.

    Attributes:
      wrong: actions that belonged to another tick.
      ticks: by the number of a game, how many of its actions were carried out, and whether it has ended by its rules.
    """

    observation_space, action_space = OBSERVATION, ACTION

    def __init__(self, seed: int = 1, longest: int = 60) -> None:
        """Prepare games of 1 to ``longest`` ticks."""
        self._random, self._longest = random.Random(seed), longest
        self.wrong = 0
        self.ticks: dict[int, tuple[int, bool]] = {}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """See Gymnasium."""
        self._game, self._tick, self._last = next(_numbers), 1, self._random.randint(1, self._longest)
        self.ticks[self._game] = 0, False
        return np.array([self._game, 1]), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """See Gymnasium."""
        self.wrong += int(action) != action_for(self._game, self._tick)
        earned, over = reward_of(self._game, self._tick), self._tick == self._last
        self.ticks[self._game] = self._tick, over
        self._tick += 1
        return np.array([self._game, self._tick]), earned, over, False, {}


class TallySettings(BaseModel):
    """File that the learned transitions are written to: a row of five numbers for each."""

    path: str
    horizon: int = 32


class PlayerResults:
    """A policy that answers each tick of a counting game with its action, and records what it learns from."""

    Settings = TallySettings
    recurrent = False
    recomputes_outputs = True

    def __init__(
        self, spaces: EntitySpaces, settings: TallySettings, *, lanes: int, seed: int, device: str = "cpu"
    ) -> None:
        """See ``Policy``."""
        if spaces.action != ACTION:
            raise ConfigError("PlayerResults: expected the spaces of a counting game")
        self.horizon, self._path = settings.horizon, Path(settings.path)
        self.extras: dict[str, Any] = {}
        self._updates = 0

    def act(self, observations: np.ndarray, **_: Any) -> Decision:
        """See ``Policy``."""
        return Decision(action_for(observations[:, 0], observations[:, 1]), {})

    def learn(self, rollout: Rollout, group: Any) -> dict[str, float]:
        """Append game, tick, action, reward, tick that follows (0 where the game had ended) of each transition."""
        slots, lanes = np.nonzero(rollout.valid)
        seen, after = rollout.observations[slots, lanes], rollout.observations[rollout.next_slot[slots, lanes], lanes]
        following = np.where(rollout.terminated[slots, lanes], 0, after[:, 1])
        if (after[:, 0] != seen[:, 0])[following > 0].any():
            raise RuntimeError("a transition leads from one game to another")
        rows = np.column_stack([seen, rollout.actions[slots, lanes], rollout.rewards[slots, lanes], following]).astype(
            np.float64
        )
        with self._path.open("ab") as file:
            file.write(rows.tobytes())
        self._updates += 1
        return {"samples": float(len(rows))}

    def set_progress(self, done: float) -> None:
        """See ``Policy``."""

    def weights(self) -> dict[str, Any]:
        """See ``Policy``."""
        return self.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """See ``Policy``."""
        import torch

        return {"updates": torch.tensor(self._updates)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See ``Policy``."""
        self._updates = int(state["updates"])

    load_weights = load_state_dict

    def worker_state(self) -> dict[str, Any]:
        """See ``Policy``."""
        return {}

    def load_worker_state(self, state: dict[str, Any]) -> None:
        """See ``Policy``."""


def what_is_wrong(path: Path, games: list[Counting], *, left: int | None) -> list[str]:
    """Return the differences between what was learned and what was played.

    Args:
      path: that ``PlayerResults`` has written.
      games: that were played.
      left: transitions that may lie in columns that were not full at the end; None where games went on after that.
    """
    rows = np.fromfile(path).reshape(-1, 5)
    game, tick, action, reward, following = rows.T
    wrong = [f"{each.wrong} actions belonged to another tick" for each in games if each.wrong]
    played = {number: found for each in games for number, found in each.ticks.items()}
    last = np.array([played.get(int(number), (-1, False))[0] for number in game])
    ended = np.array([played.get(int(number), (-1, False))[1] for number in game])
    for text, bad in (
        ("actions are another tick's", action != action_for(game, tick)),
        ("rewards are another tick's", reward != np.float32(reward_of(game, tick))),
        ("ticks were never carried out", tick > last),
        ("ends are missing", (following == 0) != (ended & (tick == last))),
        ("following ticks are others", (following != 0) & (following != tick + 1)),
    ):
        if bad.any():
            wrong.append(f"{int(bad.sum())} {text}, such as {rows[bad][0].tolist()}")
    keys = game * 1000 + tick
    if len(np.unique(keys)) != len(keys):
        wrong.append(f"{len(keys) - len(np.unique(keys))} transitions were learned from twice")
    expected = sum(ticks for ticks, _ in played.values())
    if left is not None and expected - len(rows) > left:
        wrong.append(f"{expected - len(rows)} of {expected} transitions are missing, expected at most {left}")
    return wrong
