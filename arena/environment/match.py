"""State of the match that an environment process serves: its copies, its episodes, its messages."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from arena.common.copies.placeholders import CopyPlace
from arena.common.errors import ConfigError
from arena.common.logs import path_of_log
from arena.common.masks import sample_action
from arena.common.seeding import derive_seed, seed_global_generators
from arena.common.trees import even_slices
from arena.env_manager import ManagerSettings, create_env_manager
from arena.env_manager.faults import FAILURES, RetriesSpentError, cut_short, fault_of
from arena.env_manager.source import EnvironmentSource
from arena.environment.batch_writer import BatchWriter
from arena.environment.episodes.job_queue import JobQueue
from arena.environment.episodes.running import RunningEpisodes
from arena.environment.fault_log import FaultLog
from arena.environment.global_state import StateSource
from arena.environment.handshake import SeatOffers, collect_requests, connect_seats
from arena.environment.setup import MatchSetup, Services
from arena.environment.stepping import InProcessStepper, SubprocessStepper
from arena.envs.interface import EntitySpaces, Timestep, with_global_state
from arena.plan.seats import check_seats
from arena.protocol.messages import LogLine
from arena.protocol.wire import action_reader, blocks_of


class MatchState:
    """Copies, episodes and messages of a match; the classes that serve the match share it.

    Batches are numbered from 0. A copy has two numbers: ``copy`` within its batch, and ``number`` within the match.

    Attributes:
      setup, services: see the constructor.
      source: constructor of the copies.
      manager: manager of the copies.
      copies: stepper of the copies.
      entities: names and spaces of the environment's entities.
      job_queue: jobs of a league; None in a table.
      episodes: the running episodes.
      fault_log: log of the copies' faults.
      same_step: whether finished episodes restart within the same step.
      slices: copies of each batch.
      numbers: for each batch, (copy, number) of its copies.
      seeds: seed of the next reset of each copy.
      channel: channel to the seats.
      writers: writer of the observation messages of each batch.
      late: copies that had not answered when their batch was returned.
      started: copies whose next episode has begun already -> whether it has, or the job leaves them idle.
    """

    def __init__(self, setup: MatchSetup, services: Services) -> None:
        """Construct the copies, and connect to the seats.

        Raises:
          ConfigError: the environment cannot be constructed, or does not have the entities of the seats.
          RetriesSpentError: it has failed too often.
        """
        self.setup, self.services = setup, services
        env = setup.row.env
        if setup.deterministic:  # for environments that use the global generators
            seed_global_generators(derive_seed(setup.seed, "match", setup.match.row, setup.match.replica))
        self._name = f"row {setup.match.row} replica {setup.match.replica}"
        place = CopyPlace(setup.first_index, 0, setup.match.index, services.world.rank, setup.seed)
        self.source = EnvironmentSource(**env.construction, place=place)
        self.fault_log = FaultLog(setup.match.index, env, services)
        self._make_copies()
        self.entities = self.manager.entities
        self.same_step = env.autoreset == "same_step"
        self._make_episodes()
        # On one core nothing runs meanwhile. But a deterministic run does not depend on the machine.
        batches = 1 if setup.core_ranks and not setup.deterministic else env.batch_count
        self.slices = even_slices(env.num_envs, batches)
        self.numbers = [tuple(enumerate(range(s.start, s.stop))) for s in self.slices]
        self.late: set[int] = set()
        self.started: dict[int, bool] = {}
        self._connect()
        self._make_stepper()

    def _make_copies(self) -> None:
        match, env = self.setup.match, self.setup.row.env
        settings = ManagerSettings.of(env, derive_seed(self.setup.seed, "match", self._name))
        try:
            self.manager = create_env_manager(env.manager, self.source, env.num_envs, settings, self.fault_log.record)
        except (ConfigError, RetriesSpentError):
            raise
        except FAILURES as error:
            fault = fault_of(error, "constructor")
            self.services.log.error("match %d: %s", match.index, fault.text)
            raise self.fault_log.first.error(fault) from error
        check_seats(
            f"match {match.index} (row {match.row} of the table)",
            env.use,
            [entity.name for entity in self.manager.entities],
            [entity for seat in match.seats for entity in seat.entities],
            self.setup.row.remapped,
        )

    def _make_episodes(self) -> None:
        setup, services, copies = self.setup, self.services, self.setup.row.env.num_envs
        self.job_queue = JobQueue(setup.match.seats, len(self.entities)) if setup.league else None
        self.episodes = RunningEpisodes(
            setup.match.index,
            copies,
            self._players_of_entities(),
            self.job_queue,
            lambda episodes: services.mailbox.post(0, episodes),
            services.log,
        )
        self._running = self.episodes.by_env
        self.seeds: list[int | None] = [
            derive_seed(setup.seed, "match", self._name, "copy", number) for number in range(copies)
        ]
        self._generator = np.random.default_rng(derive_seed(setup.seed, "match", self._name, "unclaimed"))

    def _players_of_entities(self) -> tuple[str, ...]:
        match = self.setup.match
        players = [""] * len(self.entities)
        for seat in match.seats:
            for entity in seat.entities:
                players[entity] = seat.player
        unclaimed = [e.name for e, player in zip(self.entities, players, strict=True) if not player]
        if unclaimed:
            text = f"match {match.index}: nobody plays {', '.join(unclaimed)}; random actions are taken there"
            self.services.mailbox.post(0, LogLine(self.services.world.rank, "WARNING", text))
        return tuple(player or "(random)" for player in players)

    def _connect(self) -> None:
        setup, services = self.setup, self.services
        serial = setup.row.env.manager == "serial"
        source = StateSource(setup.row.env.state, self.manager, self.entities)
        requests = collect_requests(setup, services)
        seats = [
            with_global_state(
                [self.entities[e] for e in seat.entities], source.space if request.reads_global_state else None
            )
            for seat, request in zip(setup.match.seats, requests, strict=True)
        ]
        seat_blocks = [blocks_of(entities) for entities in seats]
        self.channel = connect_seats(
            setup,
            services,
            SeatOffers(seats, seat_blocks, self.slices, self.same_step, self.manager.turn_based),
            in_order=setup.deterministic and serial,  # copies in subprocesses do not affect each other
        )
        self.writers = [
            BatchWriter(
                records,
                [seat.entities for seat in setup.match.seats],
                seat_blocks,
                self.entities,
                readers=[i for i, request in enumerate(requests) if request.needs_infos],
                looks_for_nan=serial,  # copies in subprocesses check their own timesteps
                state=None if all(r.global_state is None for r in records) else source.of_batch(part),
            )
            for records, part in zip(self.channel.records, self.slices, strict=True)
        ]

    def _make_stepper(self) -> None:
        places = [(b, copy) for b, s in enumerate(self.slices) for copy in range(s.stop - s.start)]
        readers = [self._entity_readers(b, copy) for b, copy in places]
        self.copies: InProcessStepper
        if self.setup.row.env.manager == "serial":
            # In same-step mode each timestep is checked before the next episode overwrites it.
            slots = [None if self.same_step else self.writers[b].steady_slot(copy) for b, copy in places]
            self.copies = InProcessStepper(self.manager, readers, self._running, slots)
        else:
            self.copies = SubprocessStepper(self.manager, readers, self._running, [None] * len(places))

    def _entity_readers(self, batch: int, copy: int) -> list[Callable[[], Any]]:
        """Return, for each entity, a function that reads its action in one copy of a batch."""
        readers: list[Callable[[], Any] | None] = [None] * len(self.entities)
        for s, seat in enumerate(self.setup.match.seats):
            for b, block in enumerate(blocks_of([self.entities[e] for e in seat.entities])):
                for place, position in enumerate(block.positions):
                    tree = self.channel.messages[batch][s].actions[b]
                    readers[seat.entities[position]] = action_reader(tree, copy, place)
        return [r or self._random_reader(self.entities[e], e, batch, copy) for e, r in enumerate(readers)]

    def _random_reader(self, entity: EntitySpaces, index: int, batch: int, copy: int) -> Callable[[], Any]:
        """Return a function that samples an action for an entity without a player."""
        space = deepcopy(entity.action)
        space.seed(int(self._generator.integers(2**31)))
        running = self._running[self.slices[batch].start + copy]

        def sample() -> Any:
            masks = running.timestep.action_masks if running.timestep else None
            return sample_action(space, masks[index] if masks else None)

        return sample

    def next_seed(self, number: int) -> int | None:
        """Return the seed of a copy's next reset; later resets have none, unless one is set."""
        seed, self.seeds[number] = self.seeds[number], None
        return seed

    def truncated(self, timestep: Timestep | None, info: dict) -> Timestep:
        """Return the truncated end of an episode that stops at this timestep."""
        assert timestep is not None
        return cut_short(timestep, self.manager.turn_based, info)

    def send_sides(self, batch: int, seats: Sequence[int] | None = None) -> None:
        """Send the side messages of a batch, to all seats or to these only."""
        for s, side in self.writers[batch].sides.items():
            if seats is None or s in seats:
                self.channel.put_side(batch, s, side)

    @property
    def log_path(self) -> str:
        """Path of this rank's log."""
        return path_of_log(self.services.log)
