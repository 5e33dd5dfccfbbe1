"""The state of a run as text: the frame of the terminal view, and its plain lines."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions
from rich.segment import Segment

from arena.common.text import compact, duration, number
from arena.records.player_statistics import RECENT, PlayerStatistics

BARS = "▁▂▃▄▅▆▇█"
DIM = "grey58"
# differs from no style at all, so that words and the gaps between them stay apart in an exported picture
PLAIN = "default"


class ProgressState(NamedTuple):
    """State of a run to be drawn.

    Attributes:
      name: name of the run.
      seconds: wall time so far.
      round: index of the current round.
      rounds: number of rounds.
      matches: number of running matches; None if unknown.
      environment_steps, environment_steps_per_second: of all environment copies together.
      faults: number of faults.
      players: statistics of the players, in the order of the configuration.
      now: current time on the clock of the players' speeds.
    """

    name: str
    seconds: float
    round: int
    rounds: int
    matches: int | None
    environment_steps: int
    environment_steps_per_second: float
    faults: int
    players: Mapping[str, PlayerStatistics]
    now: float


class StyledText:
    """Styled text that rich prints as it is: no wrapping, no markup, and faster than a table."""

    def __init__(self) -> None:
        """Start empty."""
        self._parts: list[tuple[str, str]] = []

    def append(self, text: str, style: str = "") -> None:
        """Add text at the end."""
        if self._parts and self._parts[-1][1] == style:
            text = self._parts.pop()[0] + text
        self._parts.append((text, style))

    @property
    def plain(self) -> str:
        """The text without its styles."""
        return "".join(text for text, _ in self._parts)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the segments for rich."""
        styles = {style: console.get_style(style) if style else None for style in {style for _, style in self._parts}}
        for text, style in self._parts:
            yield Segment(text, styles[style])


class _Column(NamedTuple):
    """A column of the table.

    Attributes:
      title: title of the column.
      width: width in characters.
      rank: columns with a high rank are dropped first if the terminal is narrow.
      right: whether it is aligned to the right.
      elastic: whether it takes a part of the remaining width.
      cell: (frame, name, player, width) -> parts of the cell, each a text and its style.
    """

    title: str
    width: int
    rank: int
    right: bool
    elastic: bool
    cell: Callable[[ProgressState, str, PlayerStatistics, int], list[tuple[str, str]]]


def draw(frame: ProgressState, width: int, height: int) -> StyledText:
    """Return the view in at most ``height`` lines of ``width`` characters, or of as many as two columns need."""
    columns = _fit(_columns(frame), width - 1)
    text = StyledText()
    _header(text, frame, width)
    _row(text, [[(column.title, DIM)] for column in columns], columns)
    room = max(height - 6, 1)
    players = list(frame.players.items())
    shown = players if len(players) <= room else players[: room - 1]
    for name, player in shown:
        _row(text, [column.cell(frame, name, player, column.width) for column in columns], columns)
    if len(shown) < len(players):
        text.append(f" … and {len(players) - len(shown)} more players", DIM)
        text.append("\n")
    metrics = {name: measured(player.episode_metrics) for name, player in shown if player.episode_metrics}
    room -= len(shown) + (len(shown) < len(players))
    for name, line in list(metrics.items())[: max(room, 0)]:
        text.append(f" {name}  {line}"[: width - 1], DIM)
        text.append("\n")
    text.append("\n")
    _footer(text, frame, width)
    return text


def plain_line(frame: ProgressState, name: str) -> str:
    """Return one player's state in a line for a log."""
    player, now = frame.players[name], frame.now
    budget = f"/{player.info.budget:,} steps ({_done(player):.0%})" if player.info.budget else " steps"
    parts = [f"{name}: {player.steps:,}{budget}"]
    if player.mean_return is not None:
        parts.append(
            f"return {number(player.mean_return)} (last {len(player.returns)} of {player.episodes:,} episodes)"
        )
    if player.evaluation is not None:
        parts.append(f"evaluated {number(player.evaluation.mean)} at {player.evaluation.steps:,}")
    parts.append(f"{compact(player.steps_per_second(now))} steps/s")
    left = player.seconds_left(now)
    if left is not None:
        parts.append(f"{duration(left)} left")
    if player.updates:
        parts.append(f"{player.updates:,} updates")
    if player.episode_metrics:
        parts.append(measured(player.episode_metrics))
    return f"[{duration(frame.seconds)}] " + "  ".join(parts)


def measured(metrics: Mapping[str, float]) -> str:
    """Return the environment's metrics as text."""
    return "  ".join(f"{name} {number(value)}" for name, value in metrics.items())


def spark(values: Sequence[float]) -> str:
    """Return values as a line of bars between their minimum and maximum."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        return BARS[0] * len(values)
    top = len(BARS) - 1
    return "".join(BARS[round((value - low) / (high - low) * top)] if math.isfinite(value) else " " for value in values)


def _columns(frame: ProgressState) -> list[_Column]:
    longest = max((len(name) for name in frame.players), default=6)
    evaluated = any(player.evaluation is not None for player in frame.players.values())
    policies = max((len(_policy(player)) for player in frame.players.values()), default=6)
    return [
        _Column("player", min(max(longest + 2, 8), 24), 0, False, False, _name_cell),
        _Column("policy", min(max(policies, 6), 16), 7, False, False, _policy_cell),
        _Column("budget", 12, 3, False, True, _bar_cell),
        _Column("steps", 13, 1, True, False, _steps_cell),
        _Column("return so far", 13, 2, False, True, _spark_cell),
        _Column(f"last {RECENT}", 8, 0, True, False, _return_cell),
        *([_Column("eval", 8, 2, True, False, _evaluation_cell)] if evaluated else []),
        _Column("steps/s", 7, 4, True, False, _speed_cell),
        _Column("left", 7, 5, True, False, _left_cell),
        _Column("updates", 8, 6, True, False, _updates_cell),
    ]


def _fit(columns: list[_Column], width: int) -> list[_Column]:
    """Drop columns until the rest fits, then share the remaining width between the bar and the spark line."""

    def total() -> int:
        return sum(column.width + 2 for column in columns)

    while total() > width and any(column.rank for column in columns):
        columns = [column for column in columns if column.rank < max(c.rank for c in columns)]
    elastic = [index for index, column in enumerate(columns) if column.elastic]
    for index in elastic:
        spare = (width - total()) // (len(elastic) - elastic.index(index))
        columns[index] = columns[index]._replace(width=min(columns[index].width + max(spare, 0), 32))
    return columns


def _row(text: StyledText, cells: list[list[tuple[str, str]]], columns: list[_Column]) -> None:
    for parts, column in zip(cells, columns, strict=True):
        gap = column.width - sum(len(part) for part, _ in parts)
        text.append(" " + " " * gap if column.right else " ")
        for part, style in parts:
            text.append(part[: column.width], style)
        text.append(" " if column.right else " " * gap + " ")
    text.append("\n")


def _header(text: StyledText, frame: ProgressState, width: int) -> None:
    rounds = f"round {frame.round + 1} of {frame.rounds}  " if frame.rounds > 1 else ""
    right = f"{rounds}{duration(frame.seconds)}"
    text.append(" ")
    text.append("arena", "bold")
    text.append("  ")
    text.append(frame.name, PLAIN)
    text.append(" " * max(width - len(text.plain) - len(right) - 2, 2))
    text.append(right, DIM)
    text.append("\n\n")


def _footer(text: StyledText, frame: ProgressState, width: int) -> None:
    faults = f"{frame.faults} fault{'' if frame.faults == 1 else 's'}" if frame.faults else "no faults"
    parts = [(faults, "bold yellow" if frame.faults else DIM)]
    if frame.matches is not None:
        parts.append((f"{frame.matches} match{'' if frame.matches == 1 else 'es'}", DIM))
    parts.append((f"{compact(frame.environment_steps_per_second)} environment steps/s", DIM))
    parts.append((f"{compact(frame.environment_steps)} so far", DIM))
    room = width - 2
    for position, (part, style) in enumerate(parts):
        room -= len(part) + (5 if position else 1)
        if room < 0:
            break
        if position:
            text.append("  ")
            text.append("·", DIM)
        text.append("  " if position else " ")
        text.append(part, style)


def _done(player: PlayerStatistics) -> float:
    return min(player.steps / player.info.budget, 1.0) if player.info.budget else 0.0


def _policy(player: PlayerStatistics) -> str:
    name = player.info.use.rpartition(":")[2].rpartition("/")[2]
    return name if player.info.learns or name == "random" else f"{name}, frozen"


def _name_cell(frame: ProgressState, name: str, player: PlayerStatistics, width: int) -> list[tuple[str, str]]:
    short = name if len(name) <= width - 2 else name[: width - 3] + "…"
    return [("● ", player.info.color), (short, "bold")]


def _policy_cell(frame: ProgressState, name: str, player: PlayerStatistics, width: int) -> list[tuple[str, str]]:
    policy = _policy(player)
    return [(policy if len(policy) <= width else policy[: width - 1] + "…", PLAIN)]


def _bar_cell(frame: ProgressState, name: str, player: PlayerStatistics, width: int) -> list[tuple[str, str]]:
    if not player.info.budget:
        return []
    halves = round(_done(player) * 2 * width)
    full, half = divmod(halves, 2)
    done = "━" * full + "╸" * half
    return [(done, player.info.color), ("━" * (width - len(done)), "grey23")]


def _steps_cell(frame: ProgressState, name: str, player: PlayerStatistics, width: int) -> list[tuple[str, str]]:
    if not player.info.budget:
        return [(compact(player.steps), PLAIN)]
    return [(compact(player.steps), PLAIN), (" ", ""), (f"/ {compact(player.info.budget)}", DIM)]


def _return_cell(frame: ProgressState, name: str, player: PlayerStatistics, width: int) -> list[tuple[str, str]]:
    mean = player.mean_return
    return [("–", DIM)] if mean is None else [(number(mean), "bold")]


def _evaluation_cell(frame: ProgressState, name: str, player: PlayerStatistics, width: int) -> list[tuple[str, str]]:
    return [("–", DIM)] if player.evaluation is None else [(number(player.evaluation.mean), PLAIN)]


def _spark_cell(frame: ProgressState, name: str, player: PlayerStatistics, width: int) -> list[tuple[str, str]]:
    return [(spark(player.course.points(width)), player.info.color)]


def _speed_cell(frame: ProgressState, name: str, player: PlayerStatistics, width: int) -> list[tuple[str, str]]:
    return [(compact(player.steps_per_second(frame.now)), PLAIN)]


def _left_cell(frame: ProgressState, name: str, player: PlayerStatistics, width: int) -> list[tuple[str, str]]:
    if player.info.budget and player.steps >= player.info.budget:
        return [("done", "green")]
    left = player.seconds_left(frame.now)
    return [("–" if player.info.budget else "", DIM)] if left is None else [(duration(left), PLAIN)]


def _updates_cell(frame: ProgressState, name: str, player: PlayerStatistics, width: int) -> list[tuple[str, str]]:
    return [(f"{player.updates:,}" if player.info.learns else "", PLAIN)]
