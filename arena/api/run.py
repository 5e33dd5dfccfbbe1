"""Runs in Python: records as columns, trained players, evaluations, and a picture for notebooks."""

import io
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from arena.api.columns import Columns
from arena.api.player import Player, load
from arena.common.errors import ConfigError
from arena.common.text import number
from arena.config.resumed import load_stored_config
from arena.config.run import RunConfig
from arena.evaluation.evaluate import evaluate, select_rows
from arena.evaluation.players import global_generators_kept
from arena.evaluation.results import Results
from arena.evaluation.served import all_names
from arena.records.checkpoints import Checkpoints
from arena.records.lease import holder_of
from arena.records.player_files import NEWEST
from arena.records.player_names import split_run
from arena.records.player_statistics import RECENT
from arena.records.readers.columns import (
    episode_columns,
    evaluation_columns,
    metric_columns,
    payoff_columns,
    rating_columns,
    select,
)
from arena.records.readers.league import League, has_league, read_league
from arena.records.readers.run import (
    Attempt,
    open_records,
    read_attempts,
    read_evaluations,
    read_players,
    read_returns,
)
from arena.records.readers.table import read_table
from arena.records.run_directory import RunDirectory
from arena.report.plots import draw_returns

POLL_EVERY = 0.2
"""Seconds between two checks of whether a run has ended."""


class Run:
    """A run directory: what was configured, what was recorded, and the players that were trained.

    It may be running, in this process's own ``arena.train``, in another process or on another machine. Every access
    reads the files again.
    """

    def __init__(self, path: str | Path) -> None:
        """Open a run directory, such as ``runs/quickstart``.

        Raises:
          ConfigError: there is none.
        """
        self._run = RunDirectory.existing(path)

    def __repr__(self) -> str:
        """Return the path and the state of the run."""
        return f"Run({str(self.path)!r}, {self._state()})"

    @property
    def name(self) -> str:
        """Name of the run."""
        return self._run.name

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._run.path

    @property
    def config(self) -> RunConfig:
        """The configuration, with all defaults written out."""
        return load_stored_config(self._run.config)

    # State ------------------------------------------------------------------------------------------------------

    @property
    def attempts(self) -> list[Attempt]:
        """The starts of the run in order: the first one and every resume."""
        return read_attempts(self._run.database)

    @property
    def is_running(self) -> bool:
        """Whether the run is being written."""
        return holder_of(self.path) is not None

    @property
    def finished(self) -> bool:
        """Whether the budget of the last round is spent, so that there is nothing to resume."""
        manifest = Checkpoints(self._run.checkpoints).newest_manifest()
        if manifest is None or self.is_running:
            return False
        return bool(manifest["finished"]) and manifest["round"] == len(self.config.round_list()) - 1

    @property
    def exit_code(self) -> int | None:
        """Exit code of the last attempt: 0 if it finished or was stopped in order; None if it runs or was killed."""
        attempts = self.attempts
        return attempts[-1].exit_code if attempts else None

    def stop(self) -> None:
        """Stop a running run in order, as Ctrl-C does: it writes a checkpoint at the next update and ends.

        This does not wait for the end; ``wait`` does.

        Raises:
          ConfigError: its rank 0 runs on another machine.
        """
        holder = holder_of(self.path)
        if holder is None:
            return
        if not holder.is_here:
            raise ConfigError(
                f"{self.path}: expected a run with rank 0 on this machine, found it on {holder.host} (process "
                f"{holder.process}{f', job {holder.job}' if holder.job else ''}); stop it there"
            )
        os.kill(holder.process, signal.SIGUSR1)

    def wait(self, timeout: float | None = None) -> "Run":
        """Wait until the run has ended, and return it.

        Args:
          timeout: largest number of seconds; None for no limit.

        Raises:
          TimeoutError: it still runs.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.is_running:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{self.path} still runs after {timeout:g} s")
            time.sleep(POLL_EVERY)
        return self

    # Players ----------------------------------------------------------------------------------------------------

    @property
    def players(self) -> "Players":
        """The players by name, each loaded with its newest weights when it is accessed."""
        return Players(self)

    def player(self, name: str | None = None, at: str | int = NEWEST, *, seed: int | None = None) -> Player:
        """Return a trained player; see ``arena.load``.

        Args:
          name: ``"blue"``, ``"blue@best"``, or in full, ``"runs/x:blue@best"`` for a player of this run.
          at: its weights, unless the name has them.
          seed: seed of sampled actions; that of the run if None.

        Raises:
          ConfigError: see ``arena.load``; or the name is that of a player of another run.
        """
        if name is not None and ":" in name:
            path, name = split_run(name)
            if path.resolve() != self.path.resolve():
                raise ConfigError(f"expected a player of {self.path}, found one of {path}; use arena.load for it")
        return load(self.path, name, at, seed=seed)

    def evaluate(
        self,
        episodes: int = 100,
        *,
        deterministic: bool = False,
        row: int | str = 0,
        seats: Sequence[str] | None = None,
        at: str | int = NEWEST,
        seed: int | None = None,
        copies: int = 8,
    ) -> Results:
        """Play episodes with the trained players in this process, and return the results of each player.

        Args:
          episodes: number of episodes of each row.
          deterministic: whether to take the most likely actions.
          row: index of the row of the table to play, or ``"all"``.
          seats: names of the players, one for each seat or for each player of the row; those of the row if None.
            ``blue@2000`` and ``blue@best`` choose a snapshot.
          at: weights of the learning players: ``newest``, ``best``, or steps of a snapshot.
          seed: seed of the episodes; that of the run if None.
          copies: number of environments at the same time.

        Raises:
          ConfigError: a row or a name is unknown, a player has no weights, or a policy cannot play without its match.
        """
        config = self.config
        with global_generators_kept():
            return Results(
                evaluate(
                    self._run,
                    config,
                    rows=select_rows(config, str(row)),
                    names=seats,
                    at=str(at),
                    episodes=episodes,
                    copies=copies,
                    seed=config.seed if seed is None else seed,
                    deterministic=deterministic,
                )
            )

    # Records ----------------------------------------------------------------------------------------------------

    def episodes(self, player: str | None = None) -> Columns:
        """Return the episodes: one row for each player of each, see ``arena.records.readers.columns.episode_columns``.

        Args:
          player: only this player's; all if None.

        Raises:
          ConfigError: there are no records.
          KeyError: the records have no such player.
        """
        with open_records(self._run.database) as connection:
            return Columns(select(episode_columns(connection), player=player))

    def metrics(self, player: str | None = None, name: str | None = None) -> Columns:
        """Return what policies have reported of their learning: one row for each value.

        Columns: ``player``, ``name``, ``steps``, ``updates``, ``time``, ``value``.

        Args:
          player: only this player's; all if None.
          name: only the metric of this name, such as ``loss/policy``; all if None.

        Raises:
          ConfigError: there are no records.
          KeyError: the records have no such player or metric.
        """
        with open_records(self._run.database) as connection:
            return Columns(select(metric_columns(connection), player=player, name=name))

    def evaluations(self, player: str | None = None) -> Columns:
        """Return the evaluations of learning players while they trained: one row for each.

        Columns: ``player``, ``steps``, ``time``, ``episodes``, ``mean``, ``deviation``, ``least``, ``greatest``,
        ``seconds``.

        Args:
          player: only this player's; all if None.

        Raises:
          ConfigError: there are no records.
          KeyError: the records have no evaluation of such a player.
        """
        with open_records(self._run.database) as connection:
            return Columns(select(evaluation_columns(connection), player=player))

    def payoff(self, *, all_games: bool = False) -> Columns:
        """Return the results of each two players that have met, from the view of ``player``.

        Columns: ``player``, ``against``, ``games``, ``wins``, ``draws``, ``losses``, ``win_rate`` (a draw is one half),
        ``low`` and ``high`` (the ends of its 95 % interval), ``mean_return`` (of ``player``).

        Args:
          all_games: return all games of a league, by the weights that played them. By default its records are as it
            counts them: they decay with every game, and fade when a player is reset.

        Raises:
          ConfigError: no two players have met.
        """
        return Columns(payoff_columns(self._league(), all_games=all_games))

    def ratings(self) -> Columns:
        """Return the rating of each player, the best first.

        Columns: ``player``, ``mu`` and ``sigma`` (openskill), ``elo`` (after each game, on the scale of chess),
        ``games``, ``rating_of`` (the player, or its parent if it has the rating from it), and ``fitted_elo``,
        ``fitted_low`` and ``fitted_high``: Elo from all games of its weights together, with its 95 % interval.

        Raises:
          ConfigError: no two players have met.
        """
        return Columns(rating_columns(self._league()))

    def _league(self) -> League:
        with open_records(self._run.database) as connection:
            return read_league(connection) if has_league(connection) else read_table(connection)

    # Looks ------------------------------------------------------------------------------------------------------

    def _state(self) -> str:
        if self.is_running:
            return "running"
        if self.finished:
            return "finished"
        code = self.exit_code
        return "not begun" if not self.attempts else "killed" if code is None else "stopped" if code == 0 else "failed"

    def _repr_html_(self) -> str:
        """Return a table of the players, and their reward curves as a picture."""
        lines = [f"<b>{escape(str(self.path))}</b> ({self._state()})"]
        try:
            with open_records(self._run.database) as connection:
                players, returns = read_players(connection), read_returns(connection)
                evaluations = read_evaluations(connection)
        except ConfigError:
            return lines[0]
        cells = []
        for name, info in players.items():
            series = returns.get(name)
            steps, episodes, mean = ("", "", "")
            if series is not None:
                steps, episodes = f"{int(series.steps[-1]):,}", f"{len(series.values):,}"
                mean = number(float(series.values[-RECENT:].mean()))
            dot = f'<span style="color:{escape(info.color)}">&#9679;</span> {escape(name)}'
            cells.append([dot, escape(info.use.rpartition(":")[2]), steps, episodes, mean])
        head = "".join(
            f"<th>{title}</th>" for title in ("player", "policy", "steps", "episodes", f"mean return (last {RECENT})")
        )
        body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in cells)
        lines.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        if returns:
            picture = io.StringIO()
            draw_returns(self.name, players, returns, evaluations).savefig(picture, format="svg")
            lines.append(picture.getvalue()[picture.getvalue().index("<svg") :])
        return "\n".join(lines)


class Players(Mapping[str, Player]):
    """The players of a run by name, each loaded with its newest weights when it is accessed."""

    def __init__(self, run: Run) -> None:
        """Hold the run."""
        self._run, self._names = run, all_names(RunDirectory.existing(run.path), run.config)

    def __getitem__(self, name: str) -> Player:
        """Return a player.

        Raises:
          KeyError: there is none of this name.
          ConfigError: it has no weights.
        """
        if name not in self._names:
            raise KeyError(f"expected a player among {', '.join(self._names)}, found {name!r}")
        return self._run.player(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return the number of players."""
        return len(self._names)

    def __repr__(self) -> str:
        """Return the names."""
        return f"Players({', '.join(self._names)})"
