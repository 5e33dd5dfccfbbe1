"""A round robin between players of one or several runs, which rates them."""

import contextlib
from collections.abc import Iterator, Sequence
from itertools import combinations
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.evaluation.play import Result, play
from arena.evaluation.players import Contestant, find_contestant, make_copy, seed_libraries, take_seats
from arena.evaluation.results import standard_error
from arena.league.rating.openskill import Rating, Ratings
from arena.league.roster import Roster
from arena.league.settings import RatingConfig
from arena.records.player_statistics import mean_by_player, outcomes_of
from arena.records.readers.league import read_league
from arena.records.readers.run import open_records
from arena.records.run_directory import RunDirectory

HISTORICAL = "historical"
"""Name that stands for every historical player of a league."""

POINTS = {"win": 1.0, "draw": 0.5, "loss": 0.0}


class Game(NamedTuple):
    """One game of a tournament; all items in the order of the sides.

    Attributes:
      players: player of each side.
      returns: mean return of each side's entities.
      outcomes: win, draw or loss of each.
    """

    players: tuple[str, ...]
    returns: tuple[float, ...]
    outcomes: tuple[str, ...]


class Outcome(NamedTuple):
    """Result of a tournament of N players; players in the order of their ratings, best first.

    Attributes:
      players: their names.
      ratings: rating of each, with uncertainty.
      games: games of each, ``[N]``.
      counts: wins, draws and losses of each, ``[N, 3]``.
      returns: mean return of each and its standard error, ``[N, 2]``.
      results: wins, draws and losses of each against each, ``[N, N, 3]``.
      win_rates: win rate of each against each, draws as one half, ``[N, N]``; NaN for pairs without games.
      mean_returns: mean return of each in its games against each, ``[N, N]``; NaN likewise.
    """

    players: tuple[str, ...]
    ratings: tuple[Rating, ...]
    games: np.ndarray
    counts: np.ndarray
    returns: np.ndarray
    results: np.ndarray
    win_rates: np.ndarray
    mean_returns: np.ndarray


def sides_of(row: TableRow) -> list[list[int]]:
    """Return the seats of each side: those of one player of the table, or each seat if all are one player's.

    Raises:
      ConfigError: there is a single seat.
    """
    if len(row.seats) < 2:
        raise ConfigError("expected a match with two seats or more, found a match with one seat, which has no opponent")
    names = list(dict.fromkeys(seat.player for seat in row.seats))
    if len(names) == 1:
        return [[seat] for seat in range(len(row.seats))]
    return [[number for number, seat in enumerate(row.seats) if seat.player == name] for name in names]


def play_tournament(
    row: TableRow,
    contestants: Sequence[Contestant],
    *,
    games: int = 200,
    copies: int = 16,
    seed: int = 1,
    deterministic: bool = False,
    first_meets_all: bool = False,
) -> Iterator[Game]:
    """Play every group of players, two in most games, from every side of the match.

    Each assignment of sides gets the same episode seeds, so that no player has an advantage.

    Args:
      row: the match.
      contestants: the players.
      games: games of each group, rounded up so that all assignments of sides are played equally often.
      copies: number of copies of the environment.
      seed: root of all random streams.
      deterministic: whether to take the most likely actions.
      first_meets_all: whether to play only the groups with the first player.

    Raises:
      ConfigError: there are too few players, or one of them cannot play these seats.
    """
    sides = sides_of(row)
    if len(contestants) < len(sides):
        raise ConfigError(f"expected {len(sides)} players or more, one for each side, found {len(contestants)}")
    each = -(-games // len(sides))
    seed_libraries(seed)
    with contextlib.ExitStack() as stack:
        environments = []
        for _ in range(min(copies, each)):
            environments.append(make_copy(row))
            stack.callback(environments[-1].close)
        for group in combinations(contestants, len(sides)):
            if first_meets_all and group[0] is not contestants[0]:
                continue
            for turn in range(len(sides)):
                seated = _seated(sides, [group[(side + turn) % len(group)] for side in range(len(group))])
                streams = derive_seed(seed, "group", *(player.name for player in group), turn)
                players = take_seats(row, seated, environments, streams, deterministic=deterministic)
                for result in play(environments, players, each, derive_seed(seed, "episodes")):
                    yield _game(result)


def _seated(sides: Sequence[Sequence[int]], players: Sequence[Contestant]) -> list[Contestant]:
    """Return the player on each seat, given the player of each side."""
    by_seat = {seat: player for side, player in zip(sides, players, strict=True) for seat in side}
    return [by_seat[seat] for seat in range(len(by_seat))]


def _game(result: Result) -> Game:
    returns = mean_by_player(result.players, result.returns)
    outcomes = outcomes_of(result.players, result.returns, result.outcomes)
    return Game(tuple(returns), tuple(returns.values()), tuple(str(outcomes[name]) for name in returns))


def rate(names: Sequence[str], games: Sequence[Game], seed: int = 1) -> Outcome:
    """Return the outcome of games.

    Ratings depend on the order of games a little, so that they are processed in a random one.

    Args:
      names: names of all players.
      games: the games.
      seed: seed of that order.
    """
    index = {name: number for number, name in enumerate(names)}
    roster = Roster()
    for name in names:
        roster.add(SimpleNamespace(player_id=name, active=False, origin=object, parent_id=None))
    ratings = Ratings(roster, RatingConfig())
    for number in np.random.default_rng(derive_seed(seed, "order")).permutation(len(games)):
        game = games[number]
        ratings.update([[name] for name in game.players], [1.0 - POINTS[outcome] for outcome in game.outcomes])
    count = len(names)
    returns, results = np.zeros((count, count)), np.zeros((count, count, 3), int)
    counts = np.zeros((count, 3), int)
    totals: dict[str, list[float]] = {name: [] for name in names}
    for game in games:
        for name, total, outcome in zip(*game, strict=True):
            counts[index[name], list(POINTS).index(outcome)] += 1
            totals[name].append(total)
        for i, j in combinations(range(len(game.players)), 2):
            for first, second in ((i, j), (j, i)):
                at = index[game.players[first]], index[game.players[second]]
                ahead = POINTS[game.outcomes[first]] - POINTS[game.outcomes[second]]
                results[at][1 - int(np.sign(ahead))] += 1
                returns[at] += game.returns[first]
    order = sorted(range(count), key=lambda number: -ratings[names[number]].mu)
    results = results[np.ix_(order, order)]
    played = np.where(results.any(-1), results.sum(-1), np.nan)
    means = [
        (np.mean(totals[name]), standard_error(totals[name])) if totals[name] else (np.nan, np.nan) for name in names
    ]
    return Outcome(
        players=tuple(names[number] for number in order),
        ratings=tuple(ratings[names[number]] for number in order),
        games=counts.sum(1)[order],
        counts=counts[order],
        returns=np.array(means)[order],
        results=results,
        win_rates=(results[..., 0] + results[..., 1] / 2) / played,
        mean_returns=returns[np.ix_(order, order)] / played,
    )


def find_contestants(runs: Sequence[tuple[RunDirectory, RunConfig]], specs: Sequence[str] | None) -> list[Contestant]:
    """Return the players that ``[run:]name[@steps]`` names; all of all runs without ``specs``.

    The name ``historical`` stands for every historical player of the run's league.

    Without ``run:``, a spec refers to the first run.

    Raises:
      ConfigError: there is no such run, player or snapshot, or one is named twice.
    """
    if specs is None:
        several = len(runs) > 1
        specs = [f"{run.name}:{name}" if several else name for run, config in runs for name in config.players]
    contestants = []
    for spec in specs:
        prefix, _, name = spec.rpartition(":")
        chosen = [pair for pair in runs if prefix in ("", pair[0].name, str(pair[0]))]
        if not chosen:
            raise ConfigError(f"{spec}: there is no run {prefix!r} among {', '.join(run.name for run, _ in runs)}")
        names = _historical(chosen[0][0]) if name == HISTORICAL else [name]
        shown = [spec.removesuffix(name) + each for each in names]
        contestants += [
            find_contestant(*chosen[0], each)._replace(name=shown_name)
            for each, shown_name in zip(names, shown, strict=True)
        ]
    all_names = [contestant.name for contestant in contestants]
    twice = next((name for name in all_names if all_names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"--players: expected each player once, found {twice!r} {all_names.count(twice)} times")
    return contestants


def _historical(run: RunDirectory) -> list[str]:
    """Return the historical players of a run's league, oldest first.

    Raises:
      ConfigError: the run has none.
    """
    with open_records(run.database) as records:
        members = read_league(records).members
    names = [name for name, member in members.items() if not member.active]
    if not names:
        raise ConfigError(f"--players: {run.path} has no historical players yet")
    return names
