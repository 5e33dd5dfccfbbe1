"""``arena eval``: plays the trained players of a run against each other, prints a table, films what they do."""

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from arena.common import colors, registry
from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed
from arena.config.run import RunConfig, TableRow, load_config
from arena.envs.interface import Environment
from arena.evaluation.play import Result, play
from arena.evaluation.players import find_contestant, make_copy, seed_libraries, take_seats
from arena.evaluation.results import pair_table, pairings, player_table, tally
from arena.evaluation.video import Film, frames_per_second
from arena.records.run_directory import RunDirectory
from arena.report.progress import find_terminal, make_console


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``arena eval``; return the exit code."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    try:
        run = RunDirectory.existing(arguments.run)
        config = load_config(run.config)
        with contextlib.nullcontext() if arguments.video is None else Film(arguments.video) as film:
            results = evaluate(
                run,
                config,
                rows=_rows(config, arguments.row),
                names=arguments.seats.split(",") if arguments.seats else None,
                episodes=arguments.episodes,
                copies=arguments.copies,
                seed=config.seed if arguments.seed is None else arguments.seed,
                deterministic=arguments.deterministic,
                film=film,
                film_episodes=arguments.video_episodes,
            )
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    _print(run, config, results)
    if arguments.video:
        print(f"  film: {arguments.video}")
    return 0


def _parser() -> argparse.ArgumentParser:
    def positive(text: str) -> int:
        if not text.isdecimal() or int(text) < 1:
            raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {text!r}")
        return int(text)

    parser = argparse.ArgumentParser("arena eval", description="Play the trained players of a run against each other.")
    parser.add_argument("run", type=Path, help="a run directory, such as runs/quickstart")
    parser.add_argument("--episodes", type=positive, default=100, help="how many to play (%(default)s)")
    parser.add_argument("--seats", help="who plays, separated by commas: a name for each seat, or for each player")
    parser.add_argument("--row", default="0", help="which row of the table to play, from 0, or all (%(default)s)")
    parser.add_argument("--deterministic", action="store_true", help="take the most likely actions")
    parser.add_argument("--seed", type=int, help="seed of the episodes; the run's own if left out")
    parser.add_argument("--copies", type=positive, default=8, help="environments side by side (%(default)s)")
    parser.add_argument("--video", type=Path, metavar="FILE", help="film it: out.mp4 or out.gif")
    parser.add_argument("--video-episodes", type=positive, default=1, help="how many are filmed (%(default)s)")
    return parser


def _rows(config: RunConfig, wanted: str) -> list[TableRow]:
    """Return the rows that ``--row`` names, out of those of all rounds (each distinct one once)."""
    rows: list[TableRow] = []
    for round_ in config.round_list():
        rows += [row for row in round_.rows if row not in rows]
    if wanted == "all":
        return rows
    if not wanted.isdecimal() or int(wanted) >= len(rows):
        raise ConfigError(f"--row: expected 0 to {len(rows) - 1}, or all, found {wanted!r}")
    return [rows[int(wanted)]]


def evaluate(
    run: RunDirectory,
    config: RunConfig,
    *,
    rows: Sequence[TableRow],
    names: Sequence[str] | None = None,
    episodes: int = 100,
    copies: int = 8,
    seed: int = 1,
    deterministic: bool = False,
    film: Film | None = None,
    film_episodes: int = 1,
) -> list[Result]:
    """Play ``episodes`` episodes of each row with the newest weights of the players.

    Args:
      run: where the weights are.
      config: of the run.
      rows: the matches to play.
      names: who sits on the seats instead of whom the row names; see ``seat_names``.
      episodes: of each row.
      copies: of the environment, side by side.
      seed: the episodes' seeds and the policies' random streams derive from it.
      deterministic: take the most likely actions, whatever the configuration says.
      film: takes what one of the first row's environments draws.
      film_episodes: how many episodes are filmed.

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
            found = {name: find_contestant(run, config, name) for name in seated}
            contestants = [found[name] for name in seated]
            players = take_seats(row, contestants, environments, seed, deterministic=deterministic)
            on_step = _camera(environments[0], film, film_episodes) if film is not None and not index else _no_camera
            results += play(environments, players, episodes, derive_seed(seed, "row", index), on_step)
    return results


def seat_names(row: TableRow, names: Sequence[str] | None, config: RunConfig) -> list[str]:
    """Return who sits on each seat of a row.

    Args:
      row: of the table.
      names: one for each seat; or one for each player of the row, in order of appearance, taking over its seats.
      config: knows all players.

    Raises:
      ConfigError: a name is unknown, or there are more or fewer names than that.
    """
    usual = [seat.player for seat in row.seats]
    if names is None:
        return usual
    for name in names:
        if name not in config.players:
            near = registry.nearest(name, config.players)
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
    """Film nothing."""


def _camera(environment: Environment, film: Film, episodes: int) -> Callable[[int, bool], None]:
    """Return what films the first copy until ``episodes`` episodes are over."""
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


def _print(run: RunDirectory, config: RunConfig, results: Sequence[Result]) -> None:
    console = make_console(sys.stdout, find_terminal(sys.stdout))
    chosen = colors.resolve({name: policy.color for name, policy in config.players.items()})
    policies = {name: policy.use for name, policy in config.players.items()}
    pairs = pairings(results)
    console.print(player_table(str(run), policies, tally(results), chosen, outcomes=bool(pairs)))
    if len(pairs) > 1:
        console.print(pair_table(pairs, chosen))


if __name__ == "__main__":
    sys.exit(main())
