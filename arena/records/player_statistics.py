"""Live statistics of the players: counts, recent returns, speed, and history of returns."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from arena.common import colors
from arena.common.outcomes import scores_of
from arena.config.run import RunConfig

RECENT = 100
"""Number of episodes of a mean return, the field's convention."""

OWN_GAMES = 48
"""Number of games against a player's own snapshots that its share of points against them is taken over."""

POINTS = {"win": 1.0, "draw": 0.5, "loss": 0.0}

SPEED_WINDOW = 30.0
"""Seconds over which a speed is measured: longer than an update, shorter than a coffee break."""

SPEED_STEP = 0.1
"""Seconds between two readings that are kept: thousands of episodes may end in a second."""


class PlayerInfo(NamedTuple):
    """Configuration of a player.

    Attributes:
      use: name of its policy.
      color: ``#rrggbb``.
      learns: whether it has a budget of transition steps; a frozen player has none.
      budget: transition steps of all rounds together; None if it does not learn.
    """

    use: str
    color: str
    learns: bool = True
    budget: int | None = None


def players_of(config: RunConfig) -> dict[str, PlayerInfo]:
    """Return the configuration of every player; budgets are summed over the rounds that it plays in."""
    chosen = colors.resolve({name: policy.color for name, policy in config.players.items()})
    budgets = dict.fromkeys(config.players, 0)
    for round_ in config.round_list():
        for player in {seat.player for row in round_.rows for seat in row.seats}:
            budgets[player] += round_.budget(player)
    players = {}
    for name, policy in config.players.items():
        budget = budgets[name] if policy.learns else None
        players[name] = PlayerInfo(policy.use, chosen[name], policy.learns, budget)
    return players


class Evaluation(NamedTuple):
    """An evaluation of a player while it trains.

    Attributes:
      steps: transition steps that the weights have learned from.
      episodes: number of episodes.
      mean, deviation: mean and standard deviation of their returns.
    """

    steps: int
    episodes: int
    mean: float
    deviation: float


class Speed:
    """Growth rate of a counter over the last ``SPEED_WINDOW`` seconds."""

    def __init__(self) -> None:
        """Start without a reading."""
        self._readings: deque[tuple[float, float]] = deque()

    def read(self, now: float, count: float) -> None:
        """Record that the counter has the value ``count`` at the time ``now`` (seconds)."""
        readings = self._readings
        if readings and count < readings[-1][1]:
            readings.clear()
        if len(readings) > 1 and now < readings[-2][0] + SPEED_STEP:
            readings[-1] = now, count
        else:
            readings.append((now, count))
        while len(readings) > 2 and readings[1][0] < now - SPEED_WINDOW:
            readings.popleft()

    def per_second(self, now: float) -> float:
        """Return the growth per second; it falls when no reading arrives for longer than usual."""
        if len(self._readings) < 2:
            return 0.0
        (start, first), (end, last) = self._readings[0], self._readings[-1]
        usual = (end - start) / (len(self._readings) - 1)
        overdue = now - end > 3 * usual + 1.0
        seconds = (now if overdue else end) - start
        return (last - first) / seconds if seconds > 0 else 0.0


class ReturnHistory:
    """A long series of values as at most ``LIMIT`` means of equally many values each."""

    LIMIT = 256

    def __init__(self) -> None:
        """Start empty."""
        self._means: list[float] = []
        self._stride = 1
        self._sum, self._count = 0.0, 0

    def add(self, value: float) -> None:
        """Append a value."""
        self._sum += value
        self._count += 1
        if self._count < self._stride:
            return
        self._means.append(self._sum / self._count)
        self._sum, self._count = 0.0, 0
        if len(self._means) == self.LIMIT:
            pairs = zip(self._means[::2], self._means[1::2], strict=True)
            self._means = [(left + right) / 2 for left, right in pairs]
            self._stride *= 2

    def points(self, number: int) -> list[float]:
        """Return at most ``number`` means that cover the whole series, oldest first."""
        means = self._means
        if len(means) <= number:
            return list(means)
        edges = [round(index * len(means) / number) for index in range(number + 1)]
        return [sum(means[a:b]) / (b - a) for a, b in pairwise(edges)]

    def state(self) -> list[Any]:
        """Return the series as JSON values."""
        return [self._stride, self._sum, self._count, self._means]

    def restore(self, state: Sequence[Any]) -> None:
        """Load a state returned by ``state``."""
        self._stride, self._sum, self._count, means = state
        self._means = list(means)


class PlayerStatistics:
    """Counts and recent results of one player.

    The return of an episode is the mean over the player's entities in it.

    Attributes:
      steps: transition steps so far.
      updates: gradient updates so far.
      update_steps: transition steps of the largest update so far; 0 if workers report by time.
      episodes: number of episodes that count (those cut by a fault do not).
      returns, lengths: of the last ``RECENT`` episodes.
      round_returns: of the last ``RECENT`` episodes of this round.
      best: best mean over ``RECENT`` consecutive episodes; None before there were that many.
      wins, draws, losses: outcomes against other players.
      points: of the last ``RECENT`` games against other players: 1, 0.5 or 0.
      own_points: of the last ``OWN_GAMES`` games against its own snapshots.
      metrics: latest value of each.
      course: history of returns from the first episode on.
      evaluation, best_evaluation: the last evaluation, and the one with the highest mean; None before the first.
    """

    def __init__(self, info: PlayerInfo) -> None:
        """Create statistics without episodes."""
        self.info = info
        self.steps = self.updates = self.episodes = self.update_steps = 0
        self.wins = self.draws = self.losses = 0
        self.returns: deque[float] = deque(maxlen=RECENT)
        self.lengths: deque[int] = deque(maxlen=RECENT)
        self.round_returns: deque[float] = deque(maxlen=RECENT)
        self.points: deque[float] = deque(maxlen=RECENT)
        self.own_points: deque[float] = deque(maxlen=OWN_GAMES)
        self.best: float | None = None
        self.metrics: dict[str, float] = {}
        self.course = ReturnHistory()
        self.evaluation: Evaluation | None = None
        self.best_evaluation: Evaluation | None = None
        self._speed = Speed()
        self._steps_of_worker: dict[int, int] = {}
        self._reported = False
        self._measured: dict[str, deque[float]] = {}

    @property
    def mean_return(self) -> float | None:
        """Mean return of the last ``RECENT`` episodes; None before the first."""
        return _mean(self.returns)

    @property
    def mean_length(self) -> float | None:
        """Mean number of environment steps of the last ``RECENT`` episodes; None before the first."""
        return _mean(self.lengths)

    @property
    def share_of_points(self) -> float | None:
        """Share of the points of the last ``RECENT`` games against other players; None before the first."""
        return _mean(self.points)

    @property
    def share_against_own_snapshots(self) -> float | None:
        """Share of the points of the last ``OWN_GAMES`` games against its own snapshots; None before the first."""
        return _mean(self.own_points)

    def steps_per_second(self, now: float) -> float:
        """Return the player's current speed; ``now`` is on the clock of ``progress``."""
        return self._speed.per_second(now)

    def read_speed(self, now: float) -> None:
        """Record the current count of steps for the speed, in a copy that ``restore`` updates."""
        self._speed.read(now, self.steps)

    def seconds_left(self, now: float) -> float | None:
        """Return the time until the budget is spent at the current speed; None if unknown."""
        speed = self.steps_per_second(now)
        if self.info.budget is None or speed <= 0:
            return None
        return max(self.info.budget - self.steps, 0) / speed

    def begin_round(self, continues: bool = False) -> None:
        """Reset the step counts of the workers and, unless the round ``continues``, the returns of the round."""
        self._steps_of_worker.clear()
        if not continues:
            self.round_returns.clear()

    def progress(self, now: float, worker: int, steps: int, updates: int, pooled: bool) -> None:
        """Record a report of a worker's own steps in this round, or (``pooled``) of its whole group's in the run."""
        if pooled:
            self.update_steps = max(self.update_steps, steps - self.steps)
            self.steps = steps
        else:
            before = self._steps_of_worker.get(worker, 0)
            self.steps += steps - before
            self._steps_of_worker[worker] = steps
        self._reported = True
        self.updates = max(self.updates, updates)
        self._speed.read(now, self.steps)

    def finish(
        self,
        now: float,
        episode_return: float,
        length: int,
        transitions: int,
        outcome: str | None = None,
        met_own_snapshot: bool = False,
    ) -> None:
        """Record an episode that counts.

        Args:
          now: seconds on any steady clock.
          episode_return: mean over the player's entities.
          length: environment steps.
          transitions: transition steps of all the player's entities together.
          outcome: ``"win"``, ``"draw"``, ``"loss"`` or None.
          met_own_snapshot: whether all other players were its own snapshots.
        """
        self.episodes += 1
        # The mean can be a new best only if it has risen.
        grows = len(self.returns) < RECENT or episode_return > self.returns[0]
        self.returns.append(episode_return)
        self.round_returns.append(episode_return)
        self.lengths.append(length)
        self.course.add(episode_return)
        if outcome is not None:
            self.wins += outcome == "win"
            self.draws += outcome == "draw"
            self.losses += outcome == "loss"
            if (points := POINTS.get(outcome)) is not None:
                self.points.append(points)
                if met_own_snapshot:
                    self.own_points.append(points)
        if grows and len(self.returns) == RECENT:
            mean = sum(self.returns) / RECENT
            self.best = mean if self.best is None else max(self.best, mean)
        if not self._reported:  # no worker reports for this player: its finished episodes count its steps
            self.steps += transitions
            self._speed.read(now, self.steps)

    def forget_points(self) -> None:
        """Drop the points of the latest games: they were those of other weights."""
        self.points.clear()
        self.own_points.clear()

    def evaluated(self, evaluation: Evaluation) -> None:
        """Record an evaluation."""
        self.evaluation = evaluation
        if self.best_evaluation is None or evaluation.mean > self.best_evaluation.mean:
            self.best_evaluation = evaluation

    def measure(self, metrics: Mapping[str, float]) -> None:
        """Record the environment's metrics of an episode, means over the player's entities."""
        for name, value in metrics.items():
            self._measured.setdefault(name, deque(maxlen=RECENT)).append(value)

    @property
    def episode_metrics(self) -> dict[str, float]:
        """Environment metrics by name: means over the last ``RECENT`` episodes."""
        return {name: sum(values) / len(values) for name, values in self._measured.items()}

    def state(self) -> dict[str, Any]:
        """Return, as JSON values, the state that a resumed run continues from."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        recent = {name: list(getattr(self, name)) for name in _RECENT}
        measured = {name: list(values) for name, values in self._measured.items()}
        return {
            **counts,
            **recent,
            "points": list(self.points),
            "own_points": list(self.own_points),
            "reported": self._reported,
            "course": self.course.state(),
            "measured": measured,
            **{name: getattr(self, name) for name in _EVALUATIONS},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Load a state returned by ``state``."""
        for name in _COUNTS:
            setattr(self, name, state[name])
        for name in _RECENT:
            setattr(self, name, deque(state[name], maxlen=RECENT))
        self.points = deque(state.get("points", ()), maxlen=RECENT)  # missing in older checkpoints
        self.own_points = deque(state.get("own_points", ()), maxlen=OWN_GAMES)
        self.course.restore(state["course"])
        self._reported = state["reported"]
        for name in _EVALUATIONS:
            stored = state.get(name)  # missing in older checkpoints
            setattr(self, name, None if stored is None else Evaluation(*stored))
        measured = state.get("measured", {})  # missing in older checkpoints
        self._measured = {name: deque(values, maxlen=RECENT) for name, values in measured.items()}


_COUNTS = ("steps", "updates", "episodes", "wins", "draws", "losses", "best")
_EVALUATIONS = ("evaluation", "best_evaluation")
_RECENT = ("returns", "lengths", "round_returns")


def mean_metrics(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each name over those entities that have it."""
    names = dict.fromkeys(name for named in metrics for name in named)
    values = {name: [named[name] for named in metrics if name in named] for name in names}
    return {name: sum(series) / len(series) for name, series in values.items()}


@lru_cache(maxsize=1024)
def entities_by_player(players: tuple[str, ...]) -> Mapping[str, tuple[int, ...]]:
    """Return the entities of each player, in order of appearance; ``players`` has one for each entity.

    Thousands of episodes share few line-ups: each is computed once.
    """
    return {name: tuple(e for e, player in enumerate(players) if player == name) for name in dict.fromkeys(players)}


def outcomes_of(players: Sequence[str], returns: Sequence[float], outcomes: Sequence[Any]) -> dict[str, str | None]:
    """Return the outcome of an episode for each player: ``"win"``, ``"draw"``, ``"loss"``, or None if it met no other.

    Args:
      players: the player of each entity.
      returns: the return of each entity.
      outcomes: reported outcome of each entity (a word, or a rank with 0 as the best), or None. If a player has none,
        the players' mean returns decide.
    """
    entities = entities_by_player(tuple(players))
    if len(entities) < 2:
        return dict.fromkeys(entities)
    groups = list(entities.values())
    reported = [next((outcomes[e] for e in group if outcomes[e] is not None), None) for group in groups]
    if all(isinstance(outcome, str) for outcome in reported):
        return dict(zip(entities, map(str, reported), strict=True))
    scores = dict(zip(entities, scores_of(groups, returns, outcomes), strict=True))
    best = max(scores.values())
    winners = [name for name in entities if scores[name] == best]
    top = "win" if len(winners) == 1 else "draw"
    return {name: top if name in winners else "loss" for name in entities}


def mean_by_player(players: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    """Return the mean value of each player's entities."""
    entities = entities_by_player(tuple(players))
    return {player: sum([values[e] for e in own]) / len(own) for player, own in entities.items()}


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None
