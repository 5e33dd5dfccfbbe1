"""Writes the README's table of the arena beside its peers: ``python -m benchmarks.comparison``.

The figures are those of ``benchmarks/RESULTS.md``; they come from the same files, ``benchmarks/figures/*.json``.
"""

import json
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import PLACE, figure
from benchmarks.tools.measuring import ROOT

BEGIN, END = "<!-- comparison: begin -->", "<!-- comparison: end -->"

NOTE = """PPO: equal settings for all, no defaults (8 copies, 128 steps, minibatches of 256, 4 epochs, 2e-3). Sampling:
the arena with two workers that step the copies themselves, RLlib by Ray actors, Stable-Baselines3 by SubprocVecEnv,
PufferLib with one worker; Gymnasium's SyncVectorEnv in one process takes {plain} per second. "–": not measured."""


class System(NamedTuple):
    """A row of the table.

    Attributes:
      name: of the library, with the version that was measured.
      training: beginning of its row's name in the tables of training; empty where it was not measured.
      sampling: beginning of its row's name in the tables of sampling; empty where it was not measured.
      machines: how it uses several machines.
      past: what it has for past versions of policies as opponents.
      beyond: what it can do and the arena cannot.
    """

    name: str
    training: str
    sampling: str
    machines: str
    past: str
    beyond: str


SYSTEMS = (
    System(
        "**arena**",
        "arena: environments in 2 workers",
        "arena: environments in two",
        "one MPI job",
        "leagues, PSRO",
        "",
    ),
    System(
        "RLlib 2.60",
        "RLlib",
        "Ray actors",
        "a Ray cluster",
        "an example to copy",
        "offline data, imitation, model-based learning, learners on many GPUs",
    ),
    System(
        "Stable-Baselines3 2.9",
        "Stable-Baselines3, in",
        "Stable-Baselines3",
        "no",
        "no",
        "Windows and macOS, hindsight replay, a zoo of tuned settings and trained agents",
    ),
    System(
        "Sample Factory 2.1",
        "Sample Factory",
        "",
        "no",
        "populations (PBT)",
        "asynchronous PPO on pixels at 100,000 frames per second and more, with a GPU",
    ),
    System(
        "PufferLib 1.0",
        "",
        "PufferLib",
        "by torchrun, newer versions",
        "no",
        "environments in C at millions of steps per second",
    ),
    System("OpenSpiel 1.6", "", "", "no", "PSRO, in one process", "over 70 games, CFR, tree search, AlphaZero"),
)


def comparison() -> str:
    """Return the table, and what its columns compare, in Markdown."""
    results = {
        name: json.loads((PLACE / "figures" / f"{name}.json").read_text("utf-8")) for name in ("training", "sampling")
    }

    def measured(benchmark: str, title: str, row: str) -> str:
        found = figure(results, benchmark, title, row) if row else None
        if found is None:
            return "–"
        return f"{found[0]:,.0f}" if found[0] >= 100 else f"{found[0]:.1f}"

    head = ["", "PPO, steps/s", "PPO, s to 475", "sampling, steps/s", "several machines", "past players as opponents"]
    lines = [
        "| " + " | ".join([*head, "can, and the arena cannot"]) + " |",
        "| --- | ---: | ---: | ---: | --- | --- | --- |",
    ]
    for system in SYSTEMS:
        speed = measured("training", "PPO on CartPole-v1, 150,000 steps: speed", system.training)
        seconds = measured("training", "PPO on CartPole-v1, 150,000 steps: until", system.training)
        sampled = measured("sampling", "CartPole-v1, 8 copies", system.sampling)
        cells = [system.name, speed, seconds, sampled, system.machines, system.past, system.beyond]
        lines.append("| " + " | ".join(cells) + " |")
    plain = measured("sampling", "CartPole-v1, 8 copies", "Gymnasium SyncVectorEnv")
    return "\n".join([*lines, "", NOTE.format(plain=plain)])


def written(text: str) -> str:
    """Return a page with the table between its markers.

    Raises:
      ValueError: the page lacks one of the markers.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"expected the lines {BEGIN} and {END}, found none or only one")
    return f"{before}{BEGIN}\n\n{comparison()}\n\n{END}{after}"


def main(page: Path = ROOT / "README.md") -> None:
    """Write the table into the README."""
    page.write_text(written(page.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
