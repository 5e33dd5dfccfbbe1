"""Evaluations that a run has recorded while it trained, played once more."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.config.run import RunConfig
from arena.evaluation.play import Result
from arena.evaluation.while_training import Evaluator
from arena.records.player_files import BEST, NEWEST, newest_version, snapshot_of
from arena.records.readers.run import open_records
from arena.records.run_directory import RunDirectory


class Recorded(NamedTuple):
    """An evaluation of a player while it trained.

    Attributes:
      player: name of the player.
      steps: transition steps that its weights had learned from.
      episodes: number of episodes.
      mean: mean return of the player.
      others: other learning player -> steps of its weights.
    """

    player: str
    steps: int
    episodes: int
    mean: float
    others: Mapping[str, int]


def play_again(run: RunDirectory, config: RunConfig, player: str | None, at: str) -> tuple[list[Result], Recorded]:
    """Play the episodes of a recorded evaluation with the weights that played them.

    Args:
      run: the run directory.
      config: configuration of the run.
      player: the evaluated player; None for the only one.
      at: ``best``, ``newest`` for the last evaluation, or steps: the evaluation at these, else the first one after
        this multiple of ``evaluate.every``.

    Returns:
      The episodes, and the record.

    Raises:
      ConfigError: there is no such evaluation, or weights are not there any more.
    """
    if config.evaluate is None:
        raise ConfigError(f"{run}: expected a run with evaluations while training (the key evaluate), found none")
    player = _evaluated_player(config, player)
    recorded = find_recorded(run, config, player, at)
    weights = {player: _weights(run, recorded)}
    for other, steps in recorded.others.items():
        weights[other] = _weights_of_other(run, config, recorded, other, steps)
    section = config.evaluate.model_copy(update={"episodes": recorded.episodes})
    evaluator = Evaluator(run, config.model_copy(update={"evaluate": section}), lambda: None)
    try:
        return evaluator.play({name: str(path) for name, path in weights.items()}), recorded
    finally:
        evaluator.close()


def _evaluated_player(config: RunConfig, player: str | None) -> str:
    names = config.evaluated_players()
    if player is None and len(names) > 1:
        raise ConfigError(f"expected the player of the evaluation, RUN:PLAYER, since there are {', '.join(names)}")
    if player is not None and player not in names:
        raise ConfigError(
            f"expected a player that is evaluated while training ({', '.join(names)}), found {player!r}"
            f"{suggestion(player, names)}"
        )
    return player or names[0]


def find_recorded(run: RunDirectory, config: RunConfig, player: str, at: str) -> Recorded:
    """Return the record of an evaluation; see ``play_again``.

    Raises:
      ConfigError: there is none; the message lists those that there are.
    """
    query = "SELECT steps, episodes, mean, others FROM evaluations WHERE player = ? ORDER BY steps, attempt"
    with open_records(run.database) as connection:
        rows = {row[0]: row for row in connection.execute(query, (player,))}  # of the last attempt at these steps
    steps: int | None = None
    if at == BEST:
        steps = snapshot_of(run, player, BEST).steps
    elif at == NEWEST:
        steps = max(rows, default=None)
    elif at.isdecimal():
        assert config.evaluate is not None
        after = range(int(at), int(at) + config.evaluate.every)
        steps = next((each for each in sorted(rows) if each in after), None)
    if steps is None or steps not in rows:
        listed = ", ".join(f"{each:,}" for each in rows) or "none"
        raise ConfigError(f"{player}@{at}: expected a recorded evaluation, found those at {listed} steps")
    _, episodes, mean, others = rows[steps]
    return Recorded(player, steps, episodes, mean, json.loads(others))


def _weights(run: RunDirectory, recorded: Recorded) -> Path:
    player, steps = recorded.player, recorded.steps
    best = run.best(player)
    for path in (run.snapshot(player, steps), run.evaluated(player, steps)):
        if path.is_file():
            return path
    if best.is_file() and snapshot_of(run, player, BEST).steps == steps:
        return best
    raise _gone(player, steps)


def _weights_of_other(run: RunDirectory, config: RunConfig, recorded: Recorded, other: str, steps: int) -> Path:
    if run.snapshot(other, steps).is_file():
        return run.snapshot(other, steps)
    best, kept = run.best(recorded.player), run.best_opponent(recorded.player, other)
    if best.is_file() and kept.is_file() and snapshot_of(run, recorded.player, BEST).steps == recorded.steps:
        return kept
    newest = newest_version(run, other, config.players[other].warm_start)
    if newest is not None and newest.steps == steps:
        return newest.weights
    raise _gone(other, steps)


def _gone(player: str, steps: int) -> ConfigError:
    return ConfigError(
        f"expected the weights of {player} after {steps:,} steps, which are not kept: a run keeps the best ones and "
        "the last ones; with evaluate.keep_all: true those of every evaluation"
    )
