"""Checks of the configuration file across its sections, as functions of the model; each returns the problems found."""

import importlib.util
from collections import Counter
from collections.abc import Sequence

from pydantic import ValidationError

from arena.common import registry
from arena.common.text import count_of, did_you_mean
from arena.common.validation import Place, Problem, problems
from arena.config.environment import OUTSIDE, EnvConfig, EnvOverride
from arena.config.rounds import Round
from arena.config.run_keys import RunKeys
from arena.config.sections import BEST, EXTERNAL, OTHERS
from arena.config.table import MatchConfig, RoundConfig, Table, exactly_one, listed, named

TABLES = ("matches", "round_robin", "rounds", "league")  # the kinds of table: a file has exactly one of these keys
MANY = 2**31  # more workers than any job has: what ``auto`` may become


def structure_problems(config: RunKeys) -> list[Problem]:
    """Return problems of the tables, which later checks rely on."""
    wrong = exactly_one(config, TABLES)
    for each, place in config.written_rounds():
        wrong += _unknown_names_problems(config, each, place)
        wrong += _playable_problems(config, each, place)
        wrong += _copies_problems(config, each, (*place, "copy"))
    return wrong


def run_problems(config: RunKeys) -> list[Problem]:
    """Return problems of the run as a whole; to be called once its tables are valid.

    Raises:
      ValidationError: the league is invalid.
    """
    wrong: list[Problem] = []
    if config.league is not None:
        config.league.check(config.seed, config.policies)
        wrong = _override_problems(config, config.league.env, ("league",))
        copies = None if wrong else config.environment_of(config.league.env).copies
        wrong += _too_few_copies_problems(copies, config.league.matches, ("league", "matches"))
        sides = config.league.sides(config.seed)
        for player in config.players:
            seats = [seat.player for seat in config.league.seats(player, sides)]
            if len(seats) > 1 and config.environment_of(config.league.env).in_worker:
                text = f"expected false in a league with matches of {len(seats)} seats, found true"
                wrong = wrong or [Problem(("env", "in_worker"), text)]
    wrong += [problem for round_ in config.round_list() for problem in _learners_problems(config, round_)]
    wrong += _warm_up_problems(config)
    wrong += _evaluate_problems(config)
    wrong += _film_problems(config)
    if config.deterministic:
        wrong += _deterministic_problems(config)
    if config.spares and config.fault_tolerance == "none":
        text = "expected fault_tolerance: ulfm, without which nobody takes a dead rank's place, found none"
        wrong.append(Problem(("spares",), text, config.spares))
    return wrong


def _film_problems(config: RunKeys) -> list[Problem]:
    """Return what is impossible about films."""
    section = config.records.films
    if section is None:
        return []
    place = ("records", "films", "player")
    if section.player not in config.players:
        text = f"there is no player {section.player!r}; {did_you_mean(section.player, list(config.players))}"
        return [Problem(place, text, section.player)]
    if not config.players[section.player].learns:
        return [Problem(place, "expected a player that learns", section.player)]
    try:
        config.filmed_row()
    except LookupError:
        return [Problem(place, "expected a player of a row that can be played here, without external games")]
    if section.format == "mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        text = "expected gif, since mp4 needs the extra `video`: pip install 'arena-mpi[video]'"
        return [Problem(("records", "films", "format"), text, section.format)]
    return []


def _evaluate_problems(config: RunKeys) -> list[Problem]:
    """Return what is impossible about evaluations while training."""
    section = config.evaluate
    if section is None:
        return []
    rows = config.distinct_rows()
    if isinstance(section.row, int) and section.row >= len(rows):
        return [Problem(("evaluate", "row"), f"expected 0 to {len(rows) - 1}, or all, found {section.row}")]
    if not config.evaluated_rows():
        text = "expected a row that can be played here, found external games or external players"
        return [Problem(("evaluate", "row"), text)]
    wrong = []
    for number, name in enumerate(section.seats or ()):
        player = name.partition("@")[0]
        if player not in config.players:
            text = f"there is no policy {player!r} in policies; {did_you_mean(player, list(config.players))}"
            wrong.append(Problem(("evaluate", "seats", number), text, name))
    for row in config.evaluated_rows() if section.seats is not None else ():
        seats, players = len(row.seats), len({seat.player for seat in row.seats})
        if len(section.seats or ()) not in (seats, players):
            found = len(section.seats or ())
            text = f"expected {seats} names, one for each seat, or {players}, one for each player, found {found}"
            wrong.append(Problem(("evaluate", "seats"), text))
            break
    if not wrong and not config.evaluated_players():
        place = "seats" if section.seats is not None else "row"
        wrong.append(Problem(("evaluate", place), "expected a player that learns, without @, found none"))
    if section.stop_at is not None and config.deterministic:
        text = "expected null in a deterministic run, since an evaluation ends at no certain update"
        wrong.append(Problem(("evaluate", "stop_at"), text, section.stop_at))
    return wrong


def _unknown_names_problems(config: RunKeys, table: Table, place: Place) -> list[Problem]:
    return [
        Problem(
            (*place, *where),
            f"there is no policy {name!r} in policies; {did_you_mean(name, list(config.policies))}",
            name,
        )
        for name, where in named(table)
        if name not in config.policies
    ]


def _playable_problems(config: RunKeys, table: Table, place: Place) -> list[Problem]:
    """Return the matches that are invalid with their changes of the environment."""
    wrong: dict[Problem, None] = {}
    for match, where in listed(table):
        problems_ = _override_problems(config, match.env, (*place, *where)) or _external_seat_problems(
            config, match, (*place, *where)
        )
        players = [names[0] for names in match.seats]
        if not problems_:
            copies = config.environment_of(match.env).copies
            problems_ = _too_few_copies_problems(copies, match.replicas, (*place, *where, "replicas"))
        wrong.update(dict.fromkeys(problems_ or _in_worker_problems(config, match.env, players, (*place, *where))))
    return list(wrong)


def _override_problems(config: RunKeys, env: EnvOverride | None, place: Place) -> list[Problem]:
    try:
        if env is not None:
            env.over(config.env)
    except ValidationError as error:
        return [Problem((*place, "env", *problem.place), problem.text) for problem in problems(error, EnvConfig)]
    return []


def _too_few_copies_problems(copies: int | None, replicas: int | str, place: Place) -> list[Problem]:
    """Return a problem if a match has more replicas than copies to divide among them."""
    if copies is None or not isinstance(replicas, int) or replicas <= copies:
        return []
    text = f"expected at most one for each of the {copies} copies (env.copies), found {replicas}"
    return [Problem(place, text, replicas)]


def _external_seat_problems(config: RunKeys, match: MatchConfig, place: Place) -> list[Problem]:
    """Return the reasons why a match cannot have an external seat."""
    external = [name for names in match.seats for name in names[:1] if _is_external(config, name)]
    if not external:
        return []
    env = config.environment_of(match.env)
    wrong = []
    if len(external) > 1:
        wrong.append(Problem((*place, "seats"), f"expected at most one external seat, found {len(external)}"))
    elif len(match.seats) == 1:
        wrong.append(Problem((*place, "seats"), f"expected a seat beside the external one ({external[0]}), found none"))
    if env.use == OUTSIDE:
        text = f"expected none in a game outside, where the game itself requests actions, found {external[0]}"
        wrong.append(Problem((*place, "seats"), text))
    for name, usual in (("in_worker", False), ("manager", "serial"), ("autoreset", "next_step")):
        if getattr(env, name) != usual:
            text = f"expected {str(usual).lower()} beside an external seat, found {getattr(env, name)}"
            wrong.append(Problem(("env", name), text))
    return wrong


def _is_external(config: RunKeys, name: str) -> bool:
    return name in config.policies and config.policies[name].use == EXTERNAL


def _in_worker_problems(
    config: RunKeys, env: EnvOverride | None, players: Sequence[str], place: Place
) -> list[Problem]:
    """Return a problem if in_worker is set but no worker, nor a runner that only acts, can step a match."""
    if len(players) == 1 or not config.environment_of(env).in_worker:
        return []
    known = {name: config.players[name] for name in players if name in config.players}
    alone = [name for name, policy in known.items() if policy.learns and not policy.learners]
    drawn = [
        name for name, policy in known.items() if policy.frozen and policy.use != "random" and policy.warm_start is None
    ]
    if drawn and not alone:
        text = "expected the weights that it plays with in a match with seats that share a rank, found none"
        return [Problem(("policies", name, "warm_start"), text) for name in drawn]
    if not alone:
        return []
    inside = (*place, "env", "in_worker") if env is not None and env.in_worker else ("env", "in_worker")
    text = (
        "expected matches of one seat, or learners for each policy that learns, found a match of "
        f"{len(players)} seats and no learners for {', '.join(alone)}"
    )
    return [Problem(inside, text)]


def _copies_problems(config: RunKeys, each: RoundConfig, place: Place) -> list[Problem]:
    wrong = []
    seated = {name: config.policies[name] for name, _ in named(each) if name in config.policies}
    learning = {name: policy.use for name, policy in seated.items() if policy.learns}
    for to, source in each.copy_weights.items():
        for name, word in ((to, OTHERS), (source, BEST)):
            if name != word and name not in config.policies:
                text = f"there is no policy {name!r} in policies; {did_you_mean(name, [*config.policies, word])}"
                wrong.append(Problem((*place, to), text))
        if to == source:
            wrong.append(Problem((*place, to), f"expected two different policies, found {to!r} twice"))
        kinds = {name: config.policies[name].use for name in (to, source) if name in config.policies}
        if to == OTHERS or source == BEST:
            kinds |= learning
        if len(set(kinds.values())) > 1:
            kinds_found = ", ".join(f"{name} ({use})" for name, use in kinds.items())
            wrong.append(Problem((*place, to), f"weights fit policies of the same kind only, found {kinds_found}"))
    return wrong


def _learners_problems(config: RunKeys, round_: Round) -> list[Problem]:
    """Return the policies with learners that would get no experience."""
    wrong = []
    workers: Counter[str] = Counter()
    for row in round_.rows:
        for seat in row.seats:
            workers[seat.player] += row.replicas if isinstance(row.replicas, int) else MANY
            if row.outside and seat.player in row.learners:
                text = "expected 0 in matches with external games, which are not in lock-step, found"
                learners_found = row.learners[seat.player]
                wrong.append(Problem(("policies", seat.player, "learners"), f"{text} {learners_found}", learners_found))
    for player, learners in {name: n for row in round_.rows for name, n in row.learners.items()}.items():
        if learners > workers[player]:
            text = f"expected at most one for each of the policy's {workers[player]} workers, found {learners}"
            wrong.append(Problem(("policies", player, "learners"), text, learners))
    return wrong


def _warm_up_problems(config: RunKeys) -> list[Problem]:
    """Return the policies that would still be filling their replay buffer when their budget is spent."""
    wrong = []
    for round_ in config.round_list():
        for player in {seat.player for row in round_.rows for seat in row.seats} & config.policies.keys():
            policy = config.policies[player]
            model = registry.policy_settings_model(policy.use) if policy.learns else None
            warmup = 0 if model is None else getattr(model(**policy.settings), "warmup", 0)
            budget, found = round_.budget(player), f"{warmup:,}"
            entities = 1
            if getattr(model, "is_joint", False):  # a joint transition is one step of each entity
                seats = [seat for row in round_.rows for seat in row.seats if seat.player == player]
                entities = max(len(seat.entities) for seat in seats)
                found += f" joint transitions of {count_of(entities, 'entity', 'entities')}"
            if warmup * entities >= budget:
                text = f"expected less than the budget of {budget:,} steps, or nothing is learned; found {found}"
                wrong.append(Problem(("policies", player, "settings", "warmup"), text, warmup))
    return wrong


def _deterministic_problems(config: RunKeys) -> list[Problem]:
    """Return the settings of a deterministic run that would depend on time."""
    if config.fault_tolerance != "none":
        text = f"expected none in a deterministic run, which no death may change, found {config.fault_tolerance}"
        return [Problem(("fault_tolerance",), text, config.fault_tolerance)]
    if config.checkpoint.replay is False:
        text = "expected auto or true in a deterministic run, which resumes from every checkpoint, found false"
        return [Problem(("checkpoint", "replay"), text, False)]
    if config.league is not None:
        text = "expected a table of matches, found a league, which depends on the order of messages"
        return [Problem(("deterministic",), text, config.deterministic)]
    environments: list[tuple[EnvConfig | EnvOverride | None, Place]] = [(config.env, ())]
    environments += [
        (match.env, (*place, *where)) for each, place in config.written_rounds() for match, where in listed(each)
    ]
    if any(row.outside for round_ in config.round_list() for row in round_.rows):
        text = "expected false with games outside, which depend on time, found true"
        return [Problem(("deterministic",), text, config.deterministic)]
    timed = [
        Problem((*place, "env", "wait_timeout"), "expected none in a deterministic run, which has no clock")
        for env, place in environments
        if env is not None and env.wait_timeout is not None
    ]
    return timed + [
        Problem(
            (*place, *where),
            "expected a policy that learns in every match of a deterministic run, since its updates say how long "
            "the match lasts, found none; leave the match to arena eval",
        )
        for each, place in config.written_rounds()
        for match, where in listed(each)
        if not any(config.policies[name].learns for names in match.seats for name in names)
    ]
