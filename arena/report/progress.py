"""The live view of a run on rank 0: a table that is redrawn on a terminal, plain lines elsewhere."""

import argparse
import logging
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from arena.common.errors import ConfigError
from arena.config.run import RunConfig
from arena.records.player_statistics import PlayerStatistics, Speed
from arena.records.readers.run import open_records, read_metrics, read_players, read_returns
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from arena.report.progress_file import WRITE_EVERY, write_progress
from arena.report.progress_table import ProgressState, StyledText, draw, plain_line
from arena.report.terminal import Terminal, find_terminal, make_console
from arena.system.launcher_env import PROGRESS

REDRAW_EVERY = 0.5
"""Seconds between two drawings on a terminal: fast enough to look alive, slow enough to read."""

PLAIN_EVERY = 10.0
"""Seconds between two reports without a terminal."""


class ProgressView:
    """Shows the progress of a run. ``update`` may be called at any rate.

    Attributes:
      matches: number of running matches; None to show none.
    """

    def __init__(
        self,
        records: RecordWriter,
        config: RunConfig | None = None,
        *,
        stream: TextIO | None = None,
        terminal: Terminal | None = None,
    ) -> None:
        """Begin to show the statistics of ``records``.

        Args:
          records: the live statistics.
          config: configuration of the run, for its number of rounds; None means one.
          stream: output stream; standard output if None.
          terminal: terminal of the stream; detected if None.
        """
        stream = stream or sys.stdout
        self.matches: int | None = None
        self._records = records
        self._rounds = 1 if config is None else len(config.round_list())
        self._terminal = terminal or find_terminal(stream)
        self._console = make_console(stream, self._terminal)
        self._live: Live | None = None
        if self._terminal.interactive:
            self._live = Live(
                StyledText(), console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        self._next = time.monotonic() + (0.0 if self._live else PLAIN_EVERY)
        self._file = records.run.progress if PROGRESS in os.environ else None
        self._next_write = 0.0
        self._handler = _Lines(self)
        logging.getLogger("arena").addHandler(self._handler)

    def update(self, force: bool = False) -> None:
        """Show the current state, if due."""
        now = time.monotonic()
        if self._file is not None and (force or now >= self._next_write):
            self._next_write = now + WRITE_EVERY
            write_progress(self._file, self._frame(now))
        if not force and now < self._next:
            return
        if self._live is not None:
            self._next = now + REDRAW_EVERY
            view = draw(self._frame(now), self._console.width, self._console.height - 1)
            view.append("\n\n")  # mpirun forwards whole lines only: an empty last line is what it may hold back
            self._live.update(view, refresh=True)
        else:
            self._next = now + PLAIN_EVERY
            frame = self._frame(now)
            for name in frame.players:
                self.print(plain_line(frame, name))

    def print(self, text: str, style: str = "") -> None:
        """Print lines above the view."""
        self._console.print(Text(text, style), soft_wrap=True)

    def close(self, *, failed: bool = False) -> None:
        """Show the state once more and leave it on the screen; closing twice does nothing.

        Without a terminal, the last line of a run that has ``failed`` is its error: nothing is shown then.
        """
        if self._handler not in logging.getLogger("arena").handlers:
            return
        if self._live is not None or not failed:
            self.update(force=True)
        logging.getLogger("arena").removeHandler(self._handler)
        if self._live is not None:
            self._live.stop()

    def _frame(self, now: float) -> ProgressState:
        records = self._records
        return ProgressState(
            name=records.run.name,
            seconds=records.seconds,
            round=records.round,
            rounds=self._rounds,
            matches=self.matches,
            environment_steps=records.environment_steps,
            environment_steps_per_second=records.environment_steps_per_second(),
            faults=records.faults,
            players=records.players,
            now=now,
        )


class _Lines(logging.Handler):
    """Shows log records of the arena above the view."""

    def __init__(self, view: ProgressView) -> None:
        super().__init__(logging.INFO)
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        warning = record.levelno >= logging.WARNING
        text = f"{record.levelname.lower()}: {record.getMessage()}" if warning else record.getMessage()
        self._view.print(text, "yellow" if warning else "dim")


def frame_of_run(run: RunDirectory, at: float = 1.0) -> ProgressState:
    """Return the view's state when the fraction ``at`` of the run's time had passed, from its records.

    Raises:
      ConfigError: the run has no records of any episode.
    """
    with open_records(run.database) as connection:
        players = {name: PlayerStatistics(info) for name, info in read_players(connection).items()}
        returns, metrics = read_returns(connection), read_metrics(connection)
        lengths = connection.execute("SELECT ended_at, length FROM episodes ORDER BY ended_at").fetchall()
        ((begun, rounds, matches),) = connection.execute(
            "SELECT (SELECT min(started) FROM runs), (SELECT max(round) + 1 FROM rounds), "
            "(SELECT count(DISTINCT match) FROM episodes)"
        )
    if not lengths:
        raise ConfigError(f"{run}: expected a run that has finished episodes, found none in its records")
    reports = {name: list(metrics.get(name, {"": series}).values()) for name, series in returns.items()}
    ended = max(series.times.max() for listed in reports.values() for series in listed)
    until = begun + at * (ended - begun)
    for name, series in returns.items():
        for when, value in sorted(zip(series.times, series.values, strict=True)):
            if when <= until:
                players[name].finish(when, value, 0, 0)
        for when, steps in sorted(set().union(*(zip(each.times, each.steps, strict=True) for each in reports[name]))):
            if when <= until:
                players[name].progress(when, 0, int(steps), 0, pooled=True)
        updates = [int((metric.times <= until).sum()) for metric in metrics.get(name, {}).values()]
        players[name].updates = max(updates, default=0)
    speed, steps = Speed(), 0
    for when, length in lengths:
        if when <= until:
            steps += length
            speed.read(when, steps)
    return ProgressState(
        name=run.name,
        seconds=until - begun,
        round=0,
        rounds=rounds or 1,
        matches=matches,
        environment_steps=steps,
        environment_steps_per_second=speed.per_second(until),
        faults=0,
        players=players,
        now=until,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the view of a run as a picture, from its records."""
    parser = argparse.ArgumentParser("python -m arena.report.progress", description=main.__doc__)
    parser.add_argument("run", type=Path, help="a run directory, such as runs/quickstart")
    parser.add_argument("--picture", type=Path, required=True, help="the SVG file to write")
    parser.add_argument("--at", type=float, default=1.0, help="how much of the run is over in the picture, 0 to 1")
    parser.add_argument("--width", type=int, default=120, help="characters in a line")
    arguments = parser.parse_args(argv)
    try:
        frame = frame_of_run(RunDirectory.existing(arguments.run), arguments.at)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(
            record=True, width=arguments.width, file=nowhere, force_terminal=True, color_system="truecolor"
        )
        console.print(draw(frame, arguments.width, len(frame.players) + 10), end="")
        svg = console.export_svg(title=f"arena {frame.name}")
    # Pictures in a page may not load fonts from elsewhere, so the reader's own are named.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code, monospace", "Fira Code, DejaVu Sans Mono, Menlo, Consolas, monospace")
    arguments.picture.write_text(svg, encoding="utf-8")
    print(f"written: {arguments.picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
