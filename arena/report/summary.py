"""The table at the end of a run: results of every player, and the location of the files."""

import io
import json
import logging
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

from arena.common.files import write_text
from arena.common.text import compact, count_of, duration, number, percentages
from arena.plan.idle_cores import BusyRank, describe_busy
from arena.records.player_statistics import RECENT, Evaluation
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from arena.report.health import concerns_of
from arena.report.progress_table import measured
from arena.report.terminal import Terminal, find_terminal, make_console

logger = logging.getLogger(__name__)

OUTCOMES = "win / draw / loss of games"

WIDE = 116
"""Characters that the whole table needs; narrower terminals get it without policies, updates and speeds."""


class Activity(NamedTuple):
    """Shares of time in which the ranks of a run were busy.

    Attributes:
      ranks: the ranks.
      cores: number of cores of the job.
      advice: the keys that would use idle cores; empty if few were idle.
    """

    ranks: Sequence[BusyRank]
    cores: int
    advice: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values, with a text."""
        ranks = [rank._asdict() for rank in self.ranks]
        text = describe_busy(self.ranks, self.cores)
        return {"cores": self.cores, "text": text, "advice": self.advice, "ranks": ranks}


def write_summary(run: RunDirectory, records: RecordWriter, activity: Activity | None = None) -> str:
    """Write ``summary.txt`` and ``summary.json``, and return the text for the terminal, in colours if it has them."""
    summary = summarise(records)
    summary["activity"] = None if activity is None else activity.as_json()
    try:
        write_text(run.summary, render(run, summary, Terminal(False)))
        write_text(run.summary.with_suffix(".json"), json.dumps(summary, indent=1) + "\n")
    except OSError as error:
        logger.warning("the summary of %s cannot be written: %s", run, error)
    terminal = find_terminal(sys.stdout)
    if terminal.interactive and terminal.width is None:
        terminal = Terminal(True, *shutil.get_terminal_size())
    return render(run, summary, terminal)


def summarise(records: RecordWriter) -> dict[str, Any]:
    """Return the results of a run as JSON values."""
    seconds, waited = records.seconds, records.evaluations.waited
    training = seconds - waited
    players = {}
    for name, player in records.players.items():
        players[name] = {
            "policy": player.info.use,
            "color": player.info.color,
            "learns": player.info.learns,
            "steps": player.steps,
            "updates": player.updates,
            "episodes": player.episodes,
            "mean_return": player.mean_return,
            "best_mean_return": player.best,
            "evaluation": _described(player.evaluation),
            "best_evaluation": _described(player.best_evaluation),
            "mean_length": player.mean_length,
            "experience": _experience(player.metrics),
            "metrics": player.episode_metrics,
            "wins": player.wins,
            "draws": player.draws,
            "losses": player.losses,
            "concerns": [concern.text for concern in concerns_of(player)],
            "steps_per_second": player.steps / training if training else 0.0,
        }
    return {
        "run": records.run.name,
        "seconds": seconds,
        "waited_for_evaluations": waited,
        "environment_steps": records.environment_steps,
        "faults": records.faults,
        "players": players,
    }


def _described(evaluation: Evaluation | None) -> dict[str, Any] | None:
    return None if evaluation is None else evaluation._asdict()


def _experience(metrics: Mapping[str, float]) -> dict[str, int] | None:
    """Return the fate of the rollouts of a player with learners apart; None for others."""
    if "experience/sent" not in metrics:
        return None
    counts = {name: int(metrics[f"experience/{name}"]) for name in ("sent", "learned", "dropped")}
    return {**counts, "greatest_lag": int(metrics["lag/greatest"])}


def render(run: RunDirectory, summary: dict[str, Any], terminal: Terminal) -> str:
    """Return the result of ``summarise`` as a table, with the location of the files."""
    stream = io.StringIO()
    console = make_console(stream, terminal)
    console.print(_table(summary, narrow=console.width < WIDE))
    steps, seconds = summary["environment_steps"], summary["seconds"]
    faults = f", {summary['faults']} faults" if summary["faults"] else ""
    training = seconds - summary["waited_for_evaluations"]
    per_second = compact(steps / training) if training else "0"
    waited = summary["waited_for_evaluations"]
    evaluating = f", the last {duration(waited)} for evaluations" if waited >= 1 else ""
    line_of_time = (
        f"  {duration(seconds)} of wall time{evaluating}, {compact(steps)} environment steps ({per_second} per second)"
    )
    console.print(f"{line_of_time}{faults}")
    for name, player in summary["players"].items():
        if player["metrics"]:
            console.print(f"  [bold]{name}[/bold]  {measured(player['metrics'])} (mean of the last {RECENT})")
        if (experience := player["experience"]) is not None:
            dropped, sent = experience["dropped"], experience["sent"]
            lag = f"greatest lag {count_of(experience['greatest_lag'], 'update')}"
            console.print(f"  [bold]{name}[/bold]  {dropped:,} of {sent:,} rollouts dropped, {lag}")
        for concern in player["concerns"]:
            console.print(f"  [bold red]![/bold red] [bold]{name}[/bold]  {concern}")
    lines = [("run directory", str(run.path))]
    if (activity := summary.get("activity")) is not None:
        lines.insert(0, ("cores", activity["text"]))
        if activity["advice"]:
            lines.insert(1, ("idle cores", activity["advice"]))
    lines.append(("look", f"arena page {run.path}"))
    if (run.plots / "returns.png").is_file():
        lines.append(("plots", str(run.plots / "returns.png")))
    if any(run.tensorboard.glob("*")):
        lines.append(("curves", f"tensorboard --logdir {run.tensorboard}"))
    if any(run.players.glob("*/*.safetensors")) or any(run.checkpoints.glob("*/manifest.json")):
        command = "serve" if run.gateways.is_file() else "eval"
        lines.append(("play them", f"arena {command} {run.path}"))
    for label, where in lines:
        console.print(f"  [dim]{label:<14}[/dim] {where}", soft_wrap=True)
    return stream.getvalue()


def _table(summary: dict[str, Any], *, narrow: bool) -> Table:
    players: dict[str, dict[str, Any]] = summary["players"]
    outcomes = any(player[kind] for player in players.values() for kind in ("wins", "draws", "losses"))
    table = Table(box=SIMPLE_HEAD, title=f"[bold]{summary['run']}[/bold]", title_justify="left", title_style="")
    cells = {name: _cells(name, player) for name, player in players.items()}
    left_out = {"policy", "updates", "steps/s"} if narrow else set()
    left_out |= set() if outcomes else {OUTCOMES}
    left_out |= set() if any(player["evaluation"] for player in players.values()) else {"eval", "best eval"}
    for title in next(iter(cells.values())):
        if title not in left_out:
            table.add_column(title, justify="left" if title in ("player", "policy") else "right", no_wrap=True)
    for row in cells.values():
        table.add_row(*(cell for title, cell in row.items() if title not in left_out))
    return table


def _cells(name: str, player: dict[str, Any]) -> dict[str, str]:
    policy = player["policy"].rpartition(":")[2]
    mean, best = player["mean_return"], player["best_mean_return"]
    counts = [player[kind] for kind in ("wins", "draws", "losses")]
    return {
        "player": f"[{player['color']}]●[/] [bold]{name}[/bold]",
        "policy": policy if player["learns"] or policy == "random" else f"{policy}, frozen",
        "steps": f"{player['steps']:,}",
        "updates": f"{player['updates']:,}" if player["learns"] else "",
        "episodes": f"{player['episodes']:,}",
        f"last {RECENT}": "–" if mean is None else f"[bold]{number(mean)}[/bold]",
        f"best {RECENT}": "–" if best is None else number(best),
        "eval": _mean_of(player["evaluation"]),
        "best eval": _mean_of(player["best_evaluation"]),
        OUTCOMES: f"{percentages(counts)} of {sum(counts):,}" if any(counts) else "",
        "steps/s": compact(player["steps_per_second"]),
    }


def _mean_of(evaluation: dict[str, Any] | None) -> str:
    return "–" if evaluation is None else number(evaluation["mean"])
