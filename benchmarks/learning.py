"""Returns that a configuration reaches: ``python -m benchmarks.learning CONFIG --seeds 1-10 --threshold 475``.

Runs the configuration once for each seed, one after the other, and reads the figures from the records of each run. A
line of the table is one learning policy of one run; returns are means over the policy's entities in an episode.
``--evaluate 100`` plays as many episodes afterwards, with the likeliest actions; ``--measured shortage`` shows what the
environment has measured by that name in the last ten episodes.
"""

import argparse
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from arena.common.errors import ConfigError
from arena.config.resumed import load_stored_config
from arena.config.run import load_config
from arena.evaluation.evaluate import evaluate
from arena.evaluation.results import tally
from arena.records.player_statistics import mean_by_player, outcomes_of
from arena.records.run_directory import RunDirectory

WINDOW = 100
"""Episodes that a mean return is taken over."""

LAST = 10
"""Episodes that what an environment measures is averaged over."""

ENTITIES = """
    SELECT e.id, x.player, x.return, x.outcome, x.steps
    FROM episodes e JOIN episode_entities x ON x.episode = e.id
    WHERE e.cause IS NULL ORDER BY e.id, x.entity
"""


class Curve(NamedTuple):
    """Finished episodes of a player, in the order of its steps at their ends.

    Attributes:
      returns: mean over the player's entities, of each episode.
      steps: transition steps that the player had taken, all workers together, when the episode was over.
      outcomes: win, draw or loss, None where it met no other player.
    """

    returns: list[float]
    steps: list[int]
    outcomes: list[str | None]

    def first(self) -> float | None:
        """Return the mean return of the first episodes, a window of them."""
        return statistics.fmean(self.returns[:WINDOW]) if self.returns else None

    def last(self) -> float | None:
        """Return the mean return of the last episodes, a window of them."""
        return statistics.fmean(self.returns[-WINDOW:]) if self.returns else None

    def reached(self, threshold: float) -> int | None:
        """Return the steps after which the last ``WINDOW`` episodes first had this mean return, or None."""
        total = 0.0
        for index, value in enumerate(self.returns):
            total += value - (self.returns[index - WINDOW] if index >= WINDOW else 0.0)
            if index >= WINDOW - 1 and total / WINDOW >= threshold - 1e-6:
                return self.steps[index]
        return None

    def won(self) -> tuple[int, int, int] | None:
        """Return how many of the last episodes were won, drawn and lost, where it met other players."""
        known = [outcome for outcome in self.outcomes[-WINDOW:] if outcome is not None]
        return (known.count("win"), known.count("draw"), known.count("loss")) if known else None


def read_curve(records: Path, player: str) -> Curve:
    """Return a player's episodes from a run's records."""
    connection = sqlite3.connect(f"file:{records}?mode=ro", uri=True)
    try:
        found = []
        for _, rows in groupby(connection.execute(ENTITIES), key=itemgetter(0)):
            _, players, returns, outcomes, steps = zip(*rows, strict=True)
            if player in players:
                mean = mean_by_player(players, returns)[player]
                found.append((steps[players.index(player)], mean, outcomes_of(players, returns, outcomes)[player]))
    finally:
        connection.close()
    found.sort(key=itemgetter(0))
    return Curve([mean for _, mean, _ in found], [steps for steps, *_ in found], [outcome for *_, outcome in found])


def wall_seconds(records: Path) -> float:
    """Return the seconds from the first rank's start to the last record of a finished run."""
    connection = sqlite3.connect(f"file:{records}?mode=ro", uri=True)
    try:
        started, ended = connection.execute("SELECT MIN(started), MAX(ended) FROM runs").fetchone()
        return (ended or started) - started
    finally:
        connection.close()


def evaluated(path: Path, player: str, episodes: int) -> float:
    """Return a player's mean return over episodes of the first row, with its newest weights and likeliest actions."""
    run = RunDirectory.existing(path)
    config = load_stored_config(run.config)
    rows = config.round_list()[0].rows[:1]
    results = evaluate(run, config, rows=rows, episodes=episodes, deterministic=True)
    return statistics.fmean(tally(results)[player].returns)


def measured(records: Path, player: str, name: str) -> float:
    """Return the mean of what the environment has measured by a name in the last ten episodes of a player."""
    question = (
        "SELECT avg(json_extract(metrics, '$.' || ?)) FROM episode_entities WHERE player = ? AND metrics NOT NULL "
        "GROUP BY episode ORDER BY episode DESC LIMIT ?"
    )
    with closing(sqlite3.connect(f"file:{records}?mode=ro", uri=True)) as connection:
        return statistics.fmean(value for (value,) in connection.execute(question, (name, player, LAST)))


def train(config: Path, overrides: Sequence[str], log: Path) -> None:
    """Run a configuration under mpirun.

    Raises:
      SystemExit: the run failed; its last lines are shown.
    """
    options = [part for override in overrides for part in ("--set", override)]
    line = [sys.executable, "-m", "arena.launch", str(config), *options]
    with log.open("w", encoding="utf-8") as out:
        code = subprocess.run(line, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    if code:
        told = "\n".join(log.read_text("utf-8", errors="replace").splitlines()[-20:])
        raise SystemExit(f"{told}\n{config}: the run ended with exit code {code}")


def seeds(text: str) -> list[int]:
    """Return the numbers of ``1-10`` or ``1,2,5``."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__.partition("\n")[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("--seeds", type=seeds, default=[1], metavar="1-10", help="seeds to run, one after the other")
    parser.add_argument("--threshold", type=float, help=f"mean return of {WINDOW} episodes to look for")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the file")
    parser.add_argument("--evaluate", type=int, metavar="N", help="episodes to play afterwards, with likeliest actions")
    parser.add_argument("--measured", metavar="NAME", help="what of info['metrics'] to show, mean of the last episodes")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the run directories there")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the table, and return the exit code."""
    args = parse(argv)
    try:
        config = load_config(args.config, args.set)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    learning = [name for name, policy in config.players.items() if policy.use != "random" and not policy.frozen]
    goal = "" if args.threshold is None else f"{f'steps to {args.threshold:g}':>14} "
    extra = f" {'evaluated':>10}" if args.evaluate else ""
    extra += f" {args.measured:>12}" if args.measured else ""
    head = f"{'seed':>4}  {'policy':<12} {goal}{'first 100':>10} {'last 100':>10} {'won/drawn/lost':>15} {'seconds':>8}"
    print(head + extra)
    columns: dict[str, list[float]] = {}
    reached: dict[str, list[int | None]] = {name: [] for name in learning}
    with tempfile.TemporaryDirectory(prefix="arena-learning-") as scratch:
        root = args.keep or Path(scratch)
        root.mkdir(parents=True, exist_ok=True)
        for seed in args.seeds:
            name = f"{config.name}-{seed}"
            train(
                args.config,
                [*args.set, f"seed={seed}", f"name={name}", f"run_root={root.resolve()}"],
                Path(scratch) / f"{name}.log",
            )
            records = root / name / "arena.sqlite"
            seconds = wall_seconds(records)
            for player in learning:
                curve = read_curve(records, player)
                if args.threshold is not None:
                    reached[player].append(curve.reached(args.threshold))
                more = {}
                if args.evaluate:
                    more["evaluated"] = evaluated(root / name, player, args.evaluate)
                if args.measured:
                    more[args.measured] = measured(records, player, args.measured)
                for title, value in more.items():
                    columns.setdefault(f"{player}: {title}", []).append(value)
                told = "".join(f" {value:>{max(10, len(title))}.2f}" for title, value in more.items())
                print(_line(seed, player, curve, args.threshold, seconds) + told, flush=True)
    for player, found in reached.items():
        if found:
            steps = [each for each in found if each is not None]
            middle = f", median {statistics.median(steps):,.0f} steps, most {max(steps):,}" if steps else ""
            print(f"{player}: {len(steps)} of {len(found)} seeds reached {args.threshold:g}{middle}")
    for title, values in columns.items():
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{title}: mean {statistics.fmean(values):,.2f}, deviation {spread:,.2f} over {len(values)} seeds")
    return 0


def _line(seed: int, player: str, curve: Curve, threshold: float | None, seconds: float) -> str:
    goal = ""
    if threshold is not None:
        steps = curve.reached(threshold)
        goal = f"{'never' if steps is None else format(steps, ','):>14} "
    first, last = (f"{value:>10.2f}" if value is not None else f"{'-':>10}" for value in (curve.first(), curve.last()))
    won = curve.won()
    told = f"{'/'.join(map(str, won)) if won else '-':>15}"
    return f"{seed:>4}  {player:<12} {goal}{first} {last} {told} {seconds:>8.0f}"


if __name__ == "__main__":
    sys.exit(main())
