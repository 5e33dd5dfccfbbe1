"""Runs all benchmarks and writes ``benchmarks/RESULTS.md`` with plots: ``python -m benchmarks.report``.

``--again`` writes the page from the figures of the last time.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.tools.measuring import ROOT

PLACE = ROOT / "benchmarks"
BENCHMARKS = ("proxy_latency", "sampling", "training", "gradient", "scale", "micro")
WIDE = 20
"""Ratio of largest to smallest figure from which on a plot has a logarithmic axis; linear bars start at zero.
zero."""

PREFACE = """# Speed

`python -m benchmarks.report` writes this page; `benchmarks/NOTES.md` lists what was tried and with which effect.
Each benchmark also runs alone (`python -m benchmarks.sampling --help`). The contestants run in turn; in training, fast
ones run up to three times in each turn, between the slow ones. Figures are medians; a ratio says how many times better
the arena is. Absolute figures differ between machines and between days.

Each group of peers has its own interpreter, since their requirements exclude each other:

    python -m venv peers && peers/bin/pip install -r benchmarks/peers/new_gymnasium.txt
    python -m venv peers-old && peers-old/bin/pip install -r benchmarks/peers/old_gymnasium.txt
    python -m benchmarks.report --peer-python peers/bin/python --peer-python peers-old/bin/python

RLlib requires Gymnasium 1.2.2; Sample Factory and the vector of PufferLib require 0.29. The package of CleanRL
contains scripts for old interpreters, so its algorithm is written again in `benchmarks/peers/cleanrl_algorithm.py`.
Sample Factory cannot lower its learning rate linearly. EnvPool has no simple_tag, and its HalfCheetah is version 4.
PufferLib 1.0 has no continuous actions, so it has no HalfCheetah.
"""


class Bar(NamedTuple):
    """Smallest acceptable ratio of two figures.

    Attributes:
      what: description.
      benchmark: the file of figures.
      title: beginning of the table's title.
      ours: beginning of our row's name.
      other: beginning of the other row's name; empty for the best of all others.
      least: smallest ratio that is enough, ours being so many times better.
    """

    what: str
    benchmark: str
    title: str
    ours: str
    other: str
    least: float


OURS = "arena: environments in 2 workers"
"""The row of the training tables that is held to the bars."""

BARS = (
    Bar(
        "no-op step over a persistent round trip: at most 4x", "proxy_latency", "A step with 8", "arena", "limit", 1 / 4
    ),
    Bar("no-op step over AsyncVectorEnv: 25x", "proxy_latency", "A step with 8", "arena", "Gymnasium Async", 25),
    Bar("CartPole, 1 copy, over in process: 0.45", "sampling", "CartPole-v1, 1 ", "arena: proxy", "one process", 0.45),
    *(
        Bar(f"CartPole, {n}, over {peer}: {least:g}x", "sampling", f"CartPole-v1, {n}", "arena", row, least)
        for n in ("1 copy", "8 copies", "64 copies")
        for peer, row, least in (
            ("PufferLib", "PufferLib", 1.0),
            ("AsyncVectorEnv", "Gymnasium Async", 8),
            ("SubprocVecEnv", "Stable-Baselines3", 12),
            ("Ray", "Ray", 50),
        )
    ),
    *(
        Bar(f"{game}, 8 copies, over {row}: 1x", "sampling", f"{game}, 8", "arena: two", row, 1.0)
        for game in ("ALE/Pong-v5", "HalfCheetah-v5")
        for row in ("Gymnasium Async", "Stable-Baselines3", "PufferLib", "Ray")
    ),
    *(
        Bar(f"PPO on CartPole, speed over {row}: {least}x", "training", "PPO on CartPole", OURS, row, least)
        for row, least in (("Stable-Baselines3, in", 3), ("CleanRL", 6), ("Sample Factory", 8), ("RLlib", 12))
    ),
    *(
        Bar(
            f"PPO on CartPole, return over {row}: 1x",
            "training",
            "PPO on CartPole-v1, 150,000 steps: mean return",
            OURS,
            row,
            1.0,
        )
        for row in ("Stable-Baselines3, in", "CleanRL", "Sample Factory", "RLlib")
    ),
    Bar(
        "PPO on CartPole, time until 475 over the fastest peer: 2x",
        "training",
        "PPO on CartPole-v1, 150,000 steps: until",
        OURS,
        "",
        2,
    ),
    *(
        Bar(
            f"average of {size} parameters, {workers} workers, over Allreduce: at most 1.25x",
            "gradient",
            f"{size} parameters, {workers} ",
            "arena",
            "limit",
            0.8,
        )
        for workers, sizes in (
            (2, ("70,000", "1,700,000", "25,000,000")),
            (4, ("70,000", "1,700,000")),
            (8, ("70,000", "1,700,000")),
        )
        for size in sizes
    ),
    Bar("average of 70,000 parameters over torch: 1.5x", "gradient", "70,000 ", "arena", "torch", 1.5),
    Bar("151 ranks over plain MPI: 0.5", "scale", "151 ranks", "arena", "limit", 0.5),
)


def figure(results: Mapping[str, Any], benchmark: str, title: str, row: str) -> tuple[float, bool] | None:
    """Return the best figure of the rows with this name, and whether more is better; None if none was measured."""
    for table in results.get(benchmark, {}).get("tables", ()):
        if not table["title"].startswith(title):
            continue
        found = [
            each["figure"]
            for each in table["rows"]
            if each["figure"] and (each["name"].startswith(row) if row else not each["name"].startswith("arena"))
        ]
        if found:
            more = table["higher_is_better"]
            return (max(found) if more else min(found)), more
    return None


def bars(results: Mapping[str, Any]) -> list[str]:
    """Return a table of the bars and the measured ratios."""
    lines = ["| what | measured | |", "| --- | ---: | --- |"]
    for bar in BARS:
        ours = figure(results, bar.benchmark, bar.title, bar.ours)
        theirs = figure(results, bar.benchmark, bar.title, bar.other)
        if ours is None or theirs is None:
            lines.append(f"| {bar.what} | | not measured |")
            continue
        ratio = ours[0] / theirs[0] if ours[1] else theirs[0] / ours[0]
        met = "met" if ratio >= bar.least else "**missed**"
        lines.append(f"| {bar.what} | {1 / ratio if bar.least < 1 and not ours[1] else ratio:.3g} | {met} |")
    return lines


def markdown(table: Mapping[str, Any]) -> list[str]:
    """Return a table of figures."""
    better = "more" if table["higher_is_better"] else "less"
    lines = [f"### {table['title']}", "", f"{table['unit']}, {better} is better.", ""]
    lines += ["| | median | range | runs | ratio | |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for row in table["rows"]:
        if row["figure"] is None:
            lines.append(f"| {row['name']} | | | | | not measured: {row['note']} |")
            continue
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        spread = f"{row['low']:,.4g} to {row['high']:,.4g}"
        notes = "; ".join(note for note in (row["note"], row["versions"]) if note)
        lines.append(f"| {row['name']} | {row['figure']:,.4g} | {spread} | {row['times']} | {ratio} | {notes} |")
    return [*lines, ""]


def plot(name: str, tables: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the medians of all tables of a benchmark as bars, ours in colour."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = name  # the same figures give the same file
    from matplotlib import pyplot as plt

    shown = [
        (table, [row for row in table["rows"] if row["figure"] and math.isfinite(row["figure"])]) for table in tables
    ]
    shown = [(table, rows) for table, rows in shown if rows]
    if not shown:
        return
    heights = [1 + 0.32 * len(rows) for _, rows in shown]
    drawing, axes = plt.subplots(
        len(shown), figsize=(9, sum(heights)), squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axis, (table, rows) in zip(axes[:, 0], shown, strict=True):
        names = [row["name"] for row in rows][::-1]
        colors = ["tab:blue" if name.startswith("arena") else "lightgray" for name in names]
        figures = [row["figure"] for row in rows][::-1]
        axis.barh(names, figures, color=colors)
        if 0 < WIDE * min(figures) < max(figures):
            axis.set_xscale("log")
            axis.set_xlim(left=min(figures) / 2)
        axis.set_title(f"{table['title']} [{table['unit']}]", fontsize=9, loc="left")
        axis.tick_params(which="both", labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    drawing.tight_layout()
    drawing.savefig(path, metadata={"Date": None})
    plt.close(drawing)


def write(results: Mapping[str, Any], place: Path) -> None:
    """Write the page and its plots."""
    lines = [PREFACE, "## Targets", "", *bars(results), ""]
    (place / "plots").mkdir(parents=True, exist_ok=True)
    for name, found in results.items():
        where = found["machine"]
        versions = ", ".join(f"{package} {version}" for package, version in where["versions"].items())
        plot(name, found["tables"], place / "plots" / f"{name}.svg")
        lines += [
            f"## {name}",
            "",
            (
                f"`python -m benchmarks.{name}{' --quick' if found['quick'] else ''}`, {found['turns']} turns, "
                f"{where['when']}: {where['cores']} cores ({where['processor']}), load {where['load'][0]} at the end, "
                f"Python {where['python']}, {versions}."
            ),
            "",
            f"![{name}](plots/{name}.svg)",
            "",
        ]
        lines += [line for table in found["tables"] for line in markdown(table)]
    (place / "RESULTS.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def measure(names: Sequence[str], args: argparse.Namespace, place: Path) -> None:
    """Run the benchmarks, one after the other; log and leave out one that fails."""
    place.mkdir(parents=True, exist_ok=True)
    for name in names:
        line = [sys.executable, "-m", f"benchmarks.{name}", "--json", str(place / f"{name}.json")]
        line += ["--quick"] if args.quick else []
        line += [] if args.turns is None else ["--turns", str(args.turns)]
        line += [part for python in args.peer_python or () for part in ("--peer-python", python)]
        print(f"\n== {name}", flush=True)
        code = subprocess.run(line, cwd=ROOT, check=False).returncode
        if code:
            print(f"{name} ended with exit code {code}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="comma-separated, of " + ", ".join(BENCHMARKS))
    parser.add_argument("--again", action="store_true", help="measure nothing; write the page from what is there")
    parser.add_argument("--quick", action="store_true", help="small measurements: a minute for each benchmark")
    parser.add_argument("--turns", type=int, help="how often each contestant is measured")
    parser.add_argument("--peer-python", action="append", metavar="PYTHON", help="an interpreter that has peers")
    parser.add_argument("--place", type=Path, default=PLACE, help="where page, plots and figures go")
    args = parser.parse_args(argv)
    names = args.only.split(",") if args.only else list(BENCHMARKS)
    figures = args.place / "figures"
    if not args.again:
        measure(names, args, figures)
    found = {name: figures / f"{name}.json" for name in BENCHMARKS}
    load: Callable[[Path], Any] = lambda path: json.loads(path.read_text("utf-8"))  # noqa: E731
    write({name: load(path) for name, path in found.items() if path.is_file()}, args.place)
    print(f"written to {args.place / 'RESULTS.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
