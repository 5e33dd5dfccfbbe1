"""Touchdown: two teams on a square field, each running for the other's end; a touch sends both runners home."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common.colors import to_hex
from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces, Timestep
from arena.envs.touchdown.drawing import Color, draw_field

TEAMS = ("blue", "red")
START = 0.9
PACE = 0.1
REACH = 0.1
# A hundred additions of 0.1 are off by some 1e-15: without a tolerance the nineteenth step from the start (exactly on
# the line) would sometimes count as a crossing, and two entities exactly 0.1 apart would sometimes touch.
TOLERANCE = 1e-9

# Discrete action -> (right, forward). Forward points to the end that the entity has to cross.
MOVES = {0: (0.0, 0.0), 1: (PACE, 0.0), 2: (-PACE, 0.0), 3: (0.0, PACE), 4: (0.0, -PACE)}

IMAGE_SIZE = 84
IMAGE_RADIUS = 3
OWN, ALLY, OPPONENT = 2, 1, -1


class Touchdown:
    """The 2D team game of the arena's examples.

    The field is the square from -1 to 1. Blue starts at (0, 0.9) and scores below y = -1; red starts at (0, -0.9) and
    scores above y = 1. One step:

    1. Every entity moves. Red's axes are mirrored, so that an action has the same meaning for both teams: for blue,
       right is +x and forward is -y; for red, right is -x and forward is +y. x stays within [-1, 1], and no entity
       leaves through its own end.
    2. Opponents closer than 0.1 touch: both return to their starts. All touches are found before any entity moves.
    3. An entity past the line has crossed. Every entity of a team gets +1 for each crosser of its own and -1 for each
       of the opponents'; if any entity crossed, the episode terminates. At ``max_steps`` it is truncated.

    ``info["outcome"]`` is ``"win"``, ``"draw"`` or ``"loss"`` for every entity in the last step: the sign of its
    reward.
    The game has no randomness: seeds are accepted and change nothing.

    Actions, per team:
      discrete: ``Discrete(5)``: stay, right, left, forward, back, 0.1 each.
      continuous: ``Box(-1, 1, (2,))``: (right, forward) in units of 0.1, clipped to the box.

    Observations, per team (red sees its own as blue would: both coordinates negated):
      vector: float32 ``[4 * team_size]``: (x, y) of oneself, of each ally, of each opponent; both in entity order.
      image: int8 ``[84, 84, 1]``: the field from above, oneself 2, allies 1, opponents -1, nothing 0, each a square
        of 7 pixels, the observer on top of its allies and they on top of the opponents. Row 0 is the observer's own
        end and column 0 is at x = -1; for red the picture is rotated by half a turn.
    """

    turn_based = False

    def __init__(
        self,
        team_size: int = 2,
        *,
        actions: str | Mapping[str, str] = "discrete",
        observations: str | Mapping[str, str] = "vector",
        max_steps: int = 1500,
        colors: Mapping[str, str] | None = None,
    ) -> None:
        """Set up the game.

        Args:
          team_size: number of entities in each team.
          actions: ``"discrete"`` or ``"continuous"`` for both teams, or ``{"blue": ..., "red": ...}``.
          observations: ``"vector"`` or ``"image"``, likewise.
          max_steps: steps after which an episode is truncated.
          colors: colour of each team, ``{"blue": "#rrggbb" or a CSS name, ...}``.

        Raises:
          ConfigError: a setting is not one of these.
        """
        self.team_size = _positive("team_size", team_size)
        self.max_steps = _positive("max_steps", max_steps)
        wanted_actions = _per_team("actions", actions, ("discrete", "continuous"))
        wanted_observations = _per_team("observations", observations, ("vector", "image"))
        self._colors = _team_colors(colors or {})

        count = 2 * self.team_size
        self._team = [TEAMS[entity // self.team_size] for entity in range(count)]
        self._discrete = [wanted_actions[team] == "discrete" for team in self._team]
        self._image = [wanted_observations[team] == "image" for team in self._team]
        self.entities = tuple(
            EntitySpaces(
                f"{self._team[entity]}_{entity % self.team_size}",
                _observation_space(self._image[entity], count),
                spaces.Discrete(5) if self._discrete[entity] else spaces.Box(-1.0, 1.0, (2,), np.float32),
            )
            for entity in range(count)
        )
        # Positions are kept in each entity's own frame, in which it starts at (0, 0.9) and runs for y < -1: the rules
        # are then the same for both teams, and only observations of the opponents are negated.
        self._x = [0.0] * count
        self._y = [START] * count
        self._steps = 0
        self._views = [self._view(entity) for entity in range(count)]
        # vector observation = positions (all x, then all y) [index] * sign
        self._index = np.array([[axis * count + other for other, _ in view for axis in (0, 1)] for view in self._views])
        self._sign = np.array([[side for _, side in view for _ in (0, 1)] for view in self._views], np.float32)
        self._zeros = (0.0,) * count
        self._nobody = (False,) * count
        self._everybody = (True,) * count
        self._no_masks = (None,) * count

    def _view(self, entity: int) -> list[tuple[int, float]]:
        """Return (other, sign) in the order of the vector observation: the entity itself, allies, opponents."""
        size = self.team_size
        team = range(size) if entity < size else range(size, 2 * size)
        theirs = range(size, 2 * size) if entity < size else range(size)
        allies = [(other, 1.0) for other in team if other != entity]
        return [(entity, 1.0), *allies, *((other, -1.0) for other in theirs)]

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Put every entity at its start."""
        self._x = [0.0] * len(self._x)
        self._y = [START] * len(self._y)
        self._steps = 0
        return self._timestep(self._zeros, over=False, terminated=False)

    def step(self, actions: Sequence[Any]) -> Timestep:
        """Move, touch, score; see the class.

        Raises:
          ValueError: a discrete action is none of the five.
        """
        self._steps += 1
        self._move(actions)
        self._touch()
        size = self.team_size
        crossed = [y < -1.0 - TOLERANCE for y in self._y]
        terminated = True in crossed
        rewards: Sequence[float] = self._zeros
        if terminated:
            net = float(sum(crossed[:size]) - sum(crossed[size:]))
            rewards = (net,) * size + (-net,) * size
        return self._timestep(rewards, over=terminated or self._steps >= self.max_steps, terminated=terminated)

    def _move(self, actions: Sequence[Any]) -> None:
        xs, ys = self._x, self._y
        for entity, action in enumerate(actions):
            if self._discrete[entity]:
                try:
                    right, forward = MOVES[int(action)]
                except KeyError:
                    name = self.entities[entity].name
                    raise ValueError(f"{name}: expected an action from 0 to 4, found {action}") from None
            else:
                right, forward = (PACE * min(1.0, max(-1.0, float(part))) for part in action)
            xs[entity] = min(1.0, max(-1.0, xs[entity] + right))
            ys[entity] = min(1.0, ys[entity] - forward)

    def _touch(self) -> None:
        xs, ys, size = self._x, self._y, self.team_size
        near = (REACH - TOLERANCE) ** 2
        touched: set[int] = set()
        for blue in range(size):
            x, y = xs[blue], ys[blue]
            for red in range(size, 2 * size):
                # The frames are mirrored, so that the sum of coordinates is the distance along an axis.
                across, along = x + xs[red], y + ys[red]
                if across * across + along * along < near:
                    touched.update((blue, red))
        for entity in touched:
            xs[entity], ys[entity] = 0.0, START

    def _timestep(self, rewards: Sequence[float], *, over: bool, terminated: bool) -> Timestep:
        infos: list[dict] = [{} for _ in self.entities]
        if over:
            for info, reward in zip(infos, rewards, strict=True):
                info["outcome"] = "win" if reward > 0 else "loss" if reward < 0 else "draw"
        return Timestep(
            observations=self._observations(),
            rewards=rewards,
            terminated=self._everybody if terminated else self._nobody,
            truncated=self._everybody if over and not terminated else self._nobody,
            infos=infos,
            acting=self._nobody if over else self._everybody,
            action_masks=self._no_masks,
            over=over,
        )

    def _observations(self) -> list[np.ndarray]:
        positions = np.array(self._x + self._y, np.float32)
        vectors = positions[self._index] * self._sign
        if True not in self._image:
            return list(vectors)
        return [self._draw_view(entity) if image else vectors[entity] for entity, image in enumerate(self._image)]

    def _draw_view(self, entity: int) -> np.ndarray:
        image = np.zeros((IMAGE_SIZE, IMAGE_SIZE, 1), np.int8)
        half = (IMAGE_SIZE - 1) / 2
        # Drawn from the last item of the view to the first, so that the observer ends on top.
        for other, side in reversed(self._views[entity]):
            column = round(half * (1.0 + side * self._x[other]))
            # An entity that has crossed stays visible on the edge.
            row = round(half * (1.0 - min(1.0, max(-1.0, side * self._y[other]))))
            rows = slice(max(row - IMAGE_RADIUS, 0), row + IMAGE_RADIUS + 1)
            columns = slice(max(column - IMAGE_RADIUS, 0), column + IMAGE_RADIUS + 1)
            image[rows, columns] = OWN if other == entity else ALLY if side > 0 else OPPONENT
        return image

    def render(self) -> np.ndarray:
        """Return the field from above, blue's end at the top: uint8 ``[400, 400, 3]``."""
        runners = []
        for entity, team in enumerate(self._team):
            side = 1.0 if team == "blue" else -1.0
            runners.append((side * self._x[entity], side * self._y[entity], self._colors[team]))
        return draw_field(runners, self._colors["blue"], self._colors["red"], f"{self._steps}/{self.max_steps}")

    def close(self) -> None:
        """Do nothing: the game holds no resources."""


def _observation_space(image: bool, entities: int) -> spaces.Box:
    if image:
        return spaces.Box(OPPONENT, OWN, (IMAGE_SIZE, IMAGE_SIZE, 1), np.int8)
    # An entity that crosses is seen up to one pace behind the line.
    return spaces.Box(-1.0 - PACE, 1.0 + PACE, (2 * entities,), np.float32)


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"touchdown: {name}: expected a whole number of at least 1, found {value!r}")
    return value


def _per_team(name: str, value: Any, valid: Sequence[str]) -> dict[str, str]:
    """Spread one word over both teams, and check the words."""
    words = dict(value) if isinstance(value, Mapping) else dict.fromkeys(TEAMS, value)
    if set(words) != set(TEAMS) or any(word not in valid for word in words.values()):
        choice = " or ".join(valid)
        raise ConfigError(
            f"touchdown: {name}: expected {choice} for both teams, or {{blue: {choice}, red: {choice}}}, "
            f"found {value!r}"
        )
    return words


def _team_colors(colors: Mapping[str, str]) -> dict[str, Color]:
    unknown = set(colors) - set(TEAMS)
    if unknown:
        raise ConfigError(f"touchdown: colors: expected the teams blue and red, found {', '.join(sorted(unknown))}")
    return {team: Color(*bytes.fromhex(to_hex(str(colors.get(team, team)))[1:])) for team in TEAMS}
