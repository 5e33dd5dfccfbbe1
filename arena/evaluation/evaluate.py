"""Evaluation of the trained players of a run against each other."""

import contextlib
from collections.abc import Callable, Sequence

from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed
from arena.common.text import suggestion
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.envs.interface import Environment
from arena.evaluation.play import Result, play
from arena.evaluation.players import Contestant, find_contestant, make_copy, seed_libraries, split_name, take_seats
from arena.evaluation.video import VideoRecorder, frames_per_second
from arena.records.player_files import NEWEST
from arena.records.run_directory import RunDirectory


def evaluate(
    run: RunDirectory,
    config: RunConfig,
    *,
    rows: Sequence[TableRow],
    names: Sequence[str] | None = None,
    at: str = NEWEST,
    episodes: int = 100,
    copies: int = 8,
    seed: int = 1,
    deterministic: bool = False,
    film: VideoRecorder | None = None,
    film_episodes: int = 1,
) -> list[Result]:
    """Play ``episodes`` episodes of each row with trained players.

    Args:
      run: the run directory.
      config: configuration of the run.
      rows: the matches to play.
      names: players on the seats, instead of those of the row; see ``seat_names``.
      at: weights of the learning players that are named without any: ``newest``, ``best``, or steps of a snapshot.
      episodes: number of episodes of each row.
      copies: number of copies of the environment.
      seed: the episodes' seeds and the policies' random streams derive from it.
      deterministic: whether to take the most likely actions, whatever the configuration sets.
      film: recorder of one of the first row's environments.
      film_episodes: number of recorded episodes.

    Raises:
      ConfigError: a name is unknown, a player has no weights, or a policy cannot play these seats or without a match.
    """
    results: list[Result] = []
    seed_libraries(seed)
    for index, row in enumerate(rows):
        seated = seat_names(row, names, config)
        with contextlib.ExitStack() as stack:
            environments = []
            for copy in range(min(copies, episodes)):
                environment = make_copy(row, render=film is not None and not index and not copy)
                stack.callback(environment.close)
                environments.append(environment)
            by_name = {name: _contestant(run, config, name, at) for name in seated}
            contestants = [by_name[name] for name in seated]
            players = take_seats(row, contestants, environments, seed, deterministic=deterministic)
            on_step = _camera(environments[0], film, film_episodes) if film is not None and not index else _no_camera
            results += play(environments, players, episodes, derive_seed(seed, "row", index), on_step)
    return results


def _contestant(run: RunDirectory, config: RunConfig, name: str, at: str) -> Contestant:
    """Return a player under its name, with the weights that ``at`` chooses if the name does not."""
    if at == NEWEST or name not in config.players or not config.players[name].learns:
        return find_contestant(run, config, name)
    return find_contestant(run, config, f"{name}@{at}")._replace(name=name)


OUTSIDE_ONLY = (
    "expected a match that can be played here, found one with external games or an external player; "
    "arena serve RUN lets them play against trained players"
)


def select_rows(config: RunConfig, selection: str) -> list[TableRow]:
    """Return the rows that ``--row`` names, among those of all rounds (each distinct one once).

    Raises:
      ConfigError: there is no such row, or it has external games or an external player.
    """
    rows = config.distinct_rows()
    if selection == "all":
        if all(row.outside for row in rows):
            raise ConfigError(OUTSIDE_ONLY)
        return [row for row in rows if not row.outside]
    if not selection.isdecimal() or int(selection) >= len(rows):
        raise ConfigError(f"--row: expected 0 to {len(rows) - 1}, or all, found {selection!r}")
    if rows[int(selection)].outside:
        raise ConfigError(f"--row {selection}: {OUTSIDE_ONLY}")
    return [rows[int(selection)]]


def seat_names(row: TableRow, names: Sequence[str] | None, config: RunConfig) -> list[str]:
    """Return the player on each seat of a row.

    Args:
      row: row of the table.
      names: one for each seat; or one for each player of the row, in order of appearance, taking over its seats.
        ``blue@2000`` and ``blue@best`` choose a snapshot.
      config: configuration with all players.

    Raises:
      ConfigError: a name is unknown, or the number of names is wrong.
    """
    usual = [seat.player for seat in row.seats]
    if names is None:
        return usual
    for name in names:
        if split_name(config, name)[0] not in config.players:
            near = suggestion(name, config.players)
            raise ConfigError(f"--seats: there is no player {name!r}{near}; players: {', '.join(config.players)}")
    if len(names) == len(usual):
        return list(names)
    players = list(dict.fromkeys(usual))
    if len(names) == len(players):
        return [names[players.index(player)] for player in usual]
    per_player = f", or {len(players)}, one for each player" if len(players) < len(usual) else ""
    raise ConfigError(
        f"--seats: expected {len(usual)} names, one for each seat ({','.join(usual)}){per_player}, found {len(names)}"
    )


def _no_camera(copy: int, over: bool) -> None:
    """Record nothing."""


def _camera(environment: Environment, film: VideoRecorder, episodes: int) -> Callable[[int, bool], None]:
    """Return a callback that records the first copy until ``episodes`` episodes are over."""
    left = episodes
    film.start(frames_per_second(environment))

    def on_step(copy: int, over: bool) -> None:
        nonlocal left
        if copy or not left:
            return
        frame = environment.render()
        if frame is None:
            raise ConfigError("--video: this environment cannot draw (its render() gives no rgb_array)")
        film.add(frame)
        left -= over

    return on_step
