"""What can be checked before any rank starts: that every environment of the table exists and fits its seats."""

from collections.abc import Sequence

from arena.common import registry
from arena.common.errors import ConfigError
from arena.common.text import count_of
from arena.config.run import EnvConfig, Round, RunConfig, TableRow
from arena.envs.interface import EntitySpaces
from arena.plan.layout import Plan, lanes_of_group, plan, ranks_needed
from arena.plan.seats import check_seats

TOO_LARGE = 16
"""Factor between a minibatch and the default one from which on a dry run warns: gradients hardly become more exact."""


def entities_of(env: EnvConfig) -> tuple[EntitySpaces, ...]:
    """Make the environment once and return its entities.

    Raises:
      ConfigError: it cannot be made; the message says why.
    """
    wrappers = [(wrapper.use, wrapper.settings) for wrapper in env.wrappers]
    environment = registry.make_environment(env.use, env.settings, wrappers)
    try:
        return tuple(environment.entities)
    finally:
        environment.close()


def check_environments(config: RunConfig) -> None:
    """Make each distinct environment of the table once and hold the matches against it.

    Raises:
      ConfigError: an environment cannot be made, or the seats do not fit it.
    """
    known: dict[str, list[str]] = {}
    for round_ in config.round_list():
        planned = plan(round_.rows, [0] * ranks_needed(round_.rows))
        for match in planned.matches:
            if match.replica:
                continue
            env = round_.rows[match.row].env
            key = env.model_dump_json(include={"use", "settings", "wrappers"})
            if key not in known:
                known[key] = [entity.name for entity in entities_of(env)]
            listed = [entity for seat in match.all_seats for entity in seat.entities]
            check_seats(f"match row {match.row}", env.use, known[key], listed, round_.rows[match.row].remapped)


def check_replays(config: RunConfig, memory: int | None) -> None:
    """Hold the policies that learn from a replay against the spaces of their seats, and against a machine's memory.

    Args:
      config: of the run.
      memory: bytes of the one machine that all ranks are on; None where there are several.

    Raises:
      ConfigError: an algorithm cannot play a seat, or the replays do not fit.
    """
    for round_ in config.round_list():
        replays = replay_bytes(config, round_.rows)
        total = sum(replays.values())
        if memory is not None and total > memory:
            player = max(replays, key=replays.__getitem__)
            raise ConfigError(
                f"policies.{player}.settings.capacity: expected replays that fit the {memory / 1e9:.1f} GB of this "
                f"machine, found {total / 1e9:.1f} GB when they are full; lower capacity"
            )


def replay_bytes(config: RunConfig, rows: Sequence[TableRow]) -> dict[str, int]:
    """Return the memory of each player's replay when it is full, all workers together; of those that have one.

    Raises:
      ConfigError: an algorithm cannot play a seat.
    """
    found: dict[str, int] = {}
    for row in rows:
        entities: tuple[EntitySpaces, ...] = ()
        for seat in row.seats:
            policy = config.players[seat.player]
            model = registry.policy_settings_model(policy.use)
            if model is None or not hasattr(model, "replay_bytes"):
                continue
            settings = model(**policy.settings)
            entities = entities or entities_of(row.env)
            for entity in seat.entities:
                settings.check_spaces(policy.use, entities[entity])
            if policy.learns:
                found[seat.player] = settings.replay_bytes(entities[seat.entities[0]])
    return found


def notes_on_updates(config: RunConfig, round_: Round, planned: Plan) -> list[str]:
    """Return a line for each player whose updates are too large: for its budget, or for the number of its minibatches.

    Of policies with an ``update_size``; their observations are taken for vectors.
    """
    notes = []
    for player in planned.places:
        policy = config.players[player]
        model = registry.policy_settings_model(policy.use)
        if not policy.learns or model is None or not hasattr(model, "update_size"):
            continue
        settings = model(**policy.settings)
        lanes, entities = lanes_of_group(planned, round_.rows, player)
        size, budget = settings.update_size(lanes, entities), round_.budget(player)
        transitions = size.horizon * lanes
        if 2 * transitions > budget:
            notes.append(
                f"{player} learns twice at most: an update takes {transitions:,} transitions "
                f"({count_of(lanes, 'lane')} x horizon {size.horizon:,}) of a budget of {budget:,}; lower num_envs "
                "or horizon, or raise steps"
            )
        elif transitions > size.minibatches * size.usual_minibatch * TOO_LARGE:
            parts = count_of(size.minibatches, "minibatch", "minibatches")
            notes.append(
                f"{player} learns little from each transition: an epoch has {parts} of "
                f"{transitions // size.minibatches:,} transitions, over {TOO_LARGE} times the usual "
                f"{size.usual_minibatch}; raise minibatches, or lower num_envs or horizon"
            )
    return notes


def check_weights(config: RunConfig) -> None:
    """Load each weights file that players are to start from into its policy once.

    Builds policies, and so imports torch, where there is such a file; never called in a run's own processes.

    Raises:
      ConfigError: a file cannot be read, or its tensors do not fit; the player and both shapes are named.
    """
    files = {name: policy.warm_start for name, policy in config.players.items() if policy.warm_start is not None}
    if config.league is not None:
        files |= config.league.pretrained(config.seed)
    if not files:
        return
    for round_ in config.round_list():
        for row in round_.rows:
            for seat in row.seats:
                path, policy = files.pop(seat.player, None), config.players[seat.player]
                if path is None or hasattr(registry.policy_class(policy.use), "run"):
                    continue
                spaces = entities_of(row.env)[seat.entities[0]]
                try:
                    built = registry.build_policy(policy.use, spaces, policy.settings, lanes=1, seed=0)
                    registry.load_policy_weights(built, path)
                except ConfigError as error:
                    raise ConfigError(f"player {seat.player!r} cannot start from its weights: {error}") from error
