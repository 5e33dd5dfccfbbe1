"""Checks before any rank starts: environments, policies and weights, in a child process."""

import importlib.util
import sys
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from gymnasium.spaces import Space

from arena.common import registry
from arena.common.errors import ConfigError
from arena.common.registry import missing_package
from arena.config.environment import EnvConfig
from arena.config.rounds import Round, TableRow
from arena.config.run import RunConfig
from arena.config.table import Seat
from arena.env_manager.processes import FILES_OF_PROCESS, check_open_files
from arena.envs.interface import EntitySpaces, state_space_of, with_global_state
from arena.group.policy_kinds import check_kind, needs_class
from arena.launch.preflight.in_child import Announce, run_in_child
from arena.launch.preflight.warm_start import ENCODER, encoder_weights, weights_file
from arena.plan.assignment import Plan, lanes_of_group
from arena.plan.layout import plan, ranks_needed
from arena.plan.memory import MemoryNeeds, bytes_per_copy, bytes_per_transition
from arena.plan.seats import check_seats
from arena.plan.updates import among_changing_players, sized_settings
from arena.protocol.global_state import global_state_space
from arena.protocol.wire import blocks_of
from arena.system.open_files import make_room

IMPORT_TIMEOUT = 120.0
"""Seconds in which the module of a policy must be imported; torch takes tens of seconds from a busy file system."""


def inspect_run(config: RunConfig) -> list[MemoryNeeds]:
    """Check environments, policies and weights of a run in a child process; return the memory needs of each round.

    What is doubtful is printed as a warning.

    Raises:
      ConfigError: the run cannot start; the message states the reason.
    """

    def work(announce: Announce) -> tuple[list[MemoryNeeds], list[str]]:
        inspection = _Inspection(config, announce)
        return inspection.run(), inspection.warnings

    needs, warnings = run_in_child(work)
    for warning in dict.fromkeys(warnings):
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    return needs


class _Environment(NamedTuple):
    """Entities of an environment, whether they may skip steps, and the space of its own global state, if any."""

    entities: tuple[EntitySpaces, ...]
    turn_based: bool
    state_space: Space | None


class _Inspection:
    """The checks of one run. Any of them may run user code.

    Attributes:
      warnings: what is doubtful, and no reason not to start.
    """

    def __init__(self, config: RunConfig, announce: Announce) -> None:
        self._config, self._announce = config, announce
        self.warnings: list[str] = []
        self._environments: dict[str, _Environment] = {}
        self._seats: dict[str, tuple[str, EntitySpaces]] = {}  # by player: the first seat, and its spaces

    def run(self) -> list[MemoryNeeds]:
        needs, done = [], dict[str, MemoryNeeds]()
        for round_ in self._config.round_list():
            key = repr(round_.rows)
            if key not in done:
                done[key] = self._check_round(round_)
            needs.append(done[key])
        self._check_weights()
        return needs

    def _check_round(self, round_: Round) -> MemoryNeeds:
        copies: dict[int, int] = {}
        rollouts: dict[tuple[int, int], int] = {}
        replays: dict[str, int] = {}
        planned = plan(round_.rows, [0] * ranks_needed(round_.rows))
        changing = among_changing_players(self._config, round_)
        for match in planned.matches:
            if match.replica:
                continue
            row = round_.rows[match.row]
            entities, turn_based, own = self._make(row.env)
            space = None
            if not row.outside:
                space = global_state_space(row.env.state, own, entities, turn_based=turn_based)
            listed = [entity for seat in match.all_seats for entity in seat.entities]
            names = [entity.name for entity in entities]
            check_seats(f"match row {match.row}", row.env.use, names, listed, row.remapped)
            copies[match.row] = bytes_per_copy(row, match.seats, entities)
            self._check_teams(match.row, row, match.seats, entities, turn_based)
            for number, seat in enumerate(match.seats):
                self._check_seat(f"seat {number} of match row {match.row}", row, seat, entities)
                seen = entities
                if self._reads_global_state(seat.player):
                    _check_global_state(
                        f"seat {number} of match row {match.row}", row, seat.player, space, self._is_joint(seat.player)
                    )
                    seen = with_global_state(entities, space)
                size = bytes_per_transition(seen[seat.entities[0]])
                rollouts[match.row, number] = size * len(seat.entities) * self._horizon(planned, changing, seat.player)
                if (replay := self._replay(seat, seen)) is not None:
                    replays[seat.player] = replay
        return MemoryNeeds(copies, rollouts, replays)

    def _make(self, env: EnvConfig) -> _Environment:
        """Return the spaces of an environment, which is constructed once."""
        key = env.model_dump_json(include={*env.construction})
        if key not in self._environments:
            self._announce(f"environment {env.use!r}", env.start_timeout, "env.start_timeout")
            environment = registry.make_environment(**env.construction)
            spaces = tuple(environment.entities), environment.turn_based, state_space_of(environment)
            self._environments[key] = _Environment(*spaces)
            environment.close()
        return self._environments[key]

    def _reads_global_state(self, player: str) -> bool:
        """Return whether a player's built-in policy reads the global state."""
        policy = self._config.players[player]
        model = registry.policy_settings_model(policy.use)
        return model is not None and policy.learns and getattr(model(**policy.settings), "reads_global_state", False)

    def _is_joint(self, player: str) -> bool:
        """Return whether a player's policy learns from all entities of its seat together."""
        policy = self._config.players[player]
        return policy.learns and getattr(registry.policy_settings_model(policy.use), "is_joint", False)

    def _check_teams(
        self, number: int, row: TableRow, seats: Sequence[Seat], entities: Sequence[EntitySpaces], turn_based: bool
    ) -> None:
        """Check that policies that learn from all entities of a seat together have cooperating entities there.

        Raises:
          ConfigError: entities have seats of their own, or do not act at the same time.
        """
        joint = [seat for seat in seats if self._is_joint(seat.player)]
        if not joint:
            return
        use = self._config.players[joint[0].player].use
        if turn_based:
            raise ConfigError(
                f"policy {use!r} expects entities that act at the same time, found the turn-based {row.env.use} in "
                f"match row {number}; use ppo with critic: central for it"
            )
        alone = [seat for seat in joint if len(seat.entities) == 1]
        if len(alone) > 1:
            player = alone[0].player
            names = ", ".join(entities[seat.entities[0]].name for seat in alone)
            raise ConfigError(
                f"policy {use!r} learns from the actions of all cooperating entities, and match row {number} has "
                f"{names} on seats of their own; put them on one seat: seats: [[{', '.join([player] * len(alone))}]] "
                "(with share: each, every entity has networks of its own)"
            )

    def _check_seat(self, place: str, row: TableRow, seat: Seat, entities: Sequence[EntitySpaces]) -> None:
        """Check that a player's policy can play a seat.

        Raises:
          ConfigError: it cannot, or its class does not exist.
        """
        config, player = self._config, seat.player
        use = config.players[player].use
        model = registry.policy_settings_model(use)
        if model is None:
            registry.check_reference(use)
        if needs_class(config, row, player) and (model is None or use == "sb3"):
            check_kind(config, row, player, self._import(use))
        own = [entities[entity] for entity in seat.entities]
        learns_by_lanes = (
            model is not None and use not in ("sb3", "random", "external") and config.players[player].learns
        )
        is_joint = self._is_joint(player)
        differ = any(_key(each) != _key(own[0]) for each in own)
        if differ and learns_by_lanes and not is_joint:
            names = ", ".join(each.name for each in own)
            raise ConfigError(
                f"policy {use!r} shares its parameters among the entities of a seat ({names}), but their spaces "
                "differ; give entities with different spaces seats of their own"
            )
        if differ and config.league is not None:
            names = ", ".join(each.name for each in own)
            raise ConfigError(f"a league needs the same spaces for all entities of a side; those of {names} differ")
        if model is not None and hasattr(model, "check_spaces"):
            settings = model(**config.players[player].settings)
            for each in own:
                settings.check_spaces(use, each)
            if is_joint:
                settings.check_team(use, own)
            if getattr(settings, "has_own_encoder", False):
                for each in {str(each.observation): each for each in own}.values():
                    self._check_networks(player, settings, each)
        first, spaces = self._seats.setdefault(player, (place, own[0]))
        if learns_by_lanes and _key(spaces) != _key(own[0]):
            raise ConfigError(
                f"player {player!r} sits on seats with different spaces: {spaces.observation} and {spaces.action} on "
                f"{first}, {own[0].observation} and {own[0].action} on {place}; one policy needs the same spaces "
                "everywhere: give the other seats a player of their own"
            )

    def _check_networks(self, player: str, settings: Any, spaces: EntitySpaces) -> None:
        """Check that the networks of a player's settings can read an observation."""
        limit = IMPORT_TIMEOUT, "the limit of an import"
        self._announce(f"the networks of player {player!r}", *limit)
        try:
            self.warnings += registry.check_networks(
                spaces, settings, lambda name: self._announce(f"network {name!r}", *limit)
            )
        except ConfigError as error:
            text = str(error)
            if text.partition(": ")[0] not in type(settings).model_fields:
                text = f"{'encoder' if getattr(settings, 'network', None) is None else 'network'}: {text}"
            raise ConfigError(f"policies.{player}.settings.{text}") from error

    def _import(self, use: str) -> type:
        """Return the class of a policy."""
        self._announce(f"policy {use!r}", IMPORT_TIMEOUT, "the limit of an import")
        return registry.policy_class(use)

    def _replay(self, seat: Seat, entities: Sequence[EntitySpaces]) -> int | None:
        """Return the bytes of a player's full replay; None if it has none."""
        policy = self._config.players[seat.player]
        model = registry.policy_settings_model(policy.use)
        if model is None or not policy.learns or not hasattr(model, "replay_bytes"):
            return None
        return model(**policy.settings).replay_bytes(_first_of(seat, entities))

    def _horizon(self, planned: Plan, changing: Collection[str], player: str) -> int:
        """Return the time steps of a player's rollouts; 0 if it has none that are known."""
        policy = self._config.players[player]
        model = registry.policy_settings_model(policy.use)
        if model is None or not policy.learns or player not in planned.places:
            return 0
        sized = sized_settings(self._config, player, changing)
        if sized is not None:
            return sized.update_size(*lanes_of_group(planned, player)).horizon
        return getattr(model(**policy.settings), "horizon", 0)

    def _check_weights(self) -> None:
        """Load each file that players take their first weights from into their policies once; import torch if any do.

        Raises:
          ConfigError: a file cannot be read, or its tensors do not fit; the message names the player and both shapes.
        """
        config = self._config
        files: dict[str, Any] = {
            name: weights_file(name, policy.warm_start)
            for name, policy in config.players.items()
            if policy.warm_start is not None
        }
        if config.league is not None:
            files |= config.league.pretrained(config.seed)
        encoders = {
            name: weights_file(name, start, f"settings.{ENCODER}")
            for name, policy in config.players.items()
            if (start := encoder_weights(policy)) is not None
        }
        seats = [(row, seat) for round_ in config.round_list() for row in round_.rows for seat in row.seats]
        for row, seat in seats if files or encoders else ():
            policy = config.players[seat.player]
            whole, encoder = files.pop(seat.player, None), encoders.pop(seat.player, None)
            if (whole is None and encoder is None) or hasattr(self._import(policy.use), "run"):
                continue
            spaces = _first_of(seat, self._make(row.env).entities)
            try:
                built = registry.build_policy(policy.use, spaces, policy.settings, lanes=1, seed=0)
                if encoder is not None:
                    registry.load_encoder_weights(built, encoder)
                if whole is not None:
                    registry.load_policy_weights(built, whole)
            except ConfigError as error:
                raise ConfigError(f"player {seat.player!r} cannot start from its weights: {error}") from error


def _check_global_state(place: str, row: TableRow, player: str, space: Space | None, is_joint: bool) -> None:
    """Check that there is a global state for a player that reads it.

    Raises:
      ConfigError: there is none.
    """
    if space is None:
        why = "since its games are outside" if row.outside else "with env.state: none"
        own = "use ppo" if is_joint else "use critic: own"
        remedy = own if row.outside else f"set env.state: auto or joint, or {own}"
        raise ConfigError(
            f"player {player!r} has a central critic, which reads the global state of a copy, and {place} has none "
            f"{why}; {remedy}"
        )


def check_trackers(config: RunConfig) -> None:
    """Check that the libraries of the trackers are installed.

    Raises:
      ConfigError: one is not.
    """
    for tracker in config.records.trackers:
        if importlib.util.find_spec(tracker) is None:
            raise missing_package(ImportError(name=tracker), f"records.trackers: {tracker}")


def check_files(config: RunConfig) -> None:
    """Check that a rank may open the files that it needs; raise the limit, which ranks of this machine inherit.

    Raises:
      ConfigError: the system does not allow so many.
    """
    rows = [row for round_ in config.round_list() for row in round_.rows]
    apart = [row.env.copies or row.env.num_envs for row in rows if row.env.manager == "subprocess"]
    if apart:
        check_open_files(max(apart))
    elif (hard := make_room(FILES_OF_PROCESS)) is not None:
        raise ConfigError(
            f"each rank needs {FILES_OF_PROCESS} open files, and this system allows {hard} (ulimit -Hn); raise the "
            "limit"
        )


def _first_of(seat: Seat, entities: Sequence[EntitySpaces]) -> EntitySpaces:
    """Return the spaces of a seat's first entity, with all of them as its team."""
    return blocks_of([entities[entity] for entity in seat.entities])[0].spaces


def _key(spaces: EntitySpaces) -> tuple[str, str, int]:
    return str(spaces.observation), str(spaces.action), spaces.mask_size


def check_memory(needs: Sequence[MemoryNeeds], config: RunConfig, ranks: int, available: int) -> None:
    """Check that the processes of a run on one machine fit into its memory.

    Args:
      needs: memory needs of each round.
      config: configuration of the run.
      ranks: number of ranks.
      available: bytes of the machine, or of the job's part of it.

    Raises:
      ConfigError: they do not; the message has the sum and its largest parts.
    """
    for round_, need in zip(config.round_list(), needs, strict=True):
        planned = plan(round_.rows, [0] * ranks, config.spares, evaluators=config.evaluators)
        total = 1e6 * sum(need.of_nodes(planned).values())
        if total > available:
            raise ConfigError(
                f"expected a run that fits into the {available / 1e9:.1f} GB of this machine, found about "
                f"{total / 1e9:,.1f} GB: {need.describe(planned)}; {need.remedy(planned)}"
            )
