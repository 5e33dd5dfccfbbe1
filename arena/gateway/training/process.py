"""The environment process of an external match: an HTTP server instead of copies of an environment."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Sequence
from typing import Any

import numpy as np
import uvloop

from arena.common import registry
from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed
from arena.common.trees import even_slices
from arena.config.gateway import ExternalSettings, GatewayConfig, GatewaySettings, ServerConfig
from arena.config.rounds import TableRow
from arena.environment.episodes.job_queue import JobQueue
from arena.environment.handshake import SeatOffers, collect_requests, connect_seats
from arena.environment.setup import MatchSetup, Services
from arena.envs.interface import EntitySpaces, Environment
from arena.gateway.actors.seats import load_actor
from arena.gateway.http.app import Gateway
from arena.gateway.http.server import HttpServer
from arena.gateway.server import Listener, opened
from arena.gateway.training.agents import ExternalSeats
from arena.gateway.training.exchange import Exchange
from arena.gateway.training.games import Games
from arena.gateway.training.hosted import Host, HostedGame
from arena.gateway.training.remote_agents import RemoteLink
from arena.gateway.training.spaces import entities_of
from arena.plan.seats import check_seats
from arena.protocol.gateway import GatewayOpen, RemoteWeights, Replays, RunFailed
from arena.protocol.league import Job
from arena.protocol.messages import CloseMatch, LogLine
from arena.protocol.wire import ObservationMessage, blocks_of

MAILBOX_INTERVAL = 0.05
"""Seconds between two polls of the mailbox."""

REPORT_EVERY = 1.0
"""Seconds between two reports of finished games."""


class GatewayProcess:
    """Serves one match until the root closes it."""

    def __init__(
        self,
        setup: MatchSetup,
        services: Services,
        *,
        external: ExternalSettings | None = None,
        trainers: Sequence[RemoteLink] = (),
        number: int = 0,
    ) -> None:
        """Load the actor, and offer the workers their seats.

        Args:
          setup: description of the match.
          services: services of this rank.
          external: settings of the server of an external seat; None if the games themselves are external.
          trainers: links to the workers with a policy that learns from replays of actors.
          number: index of this match among those of its node with the same port, which is added to the port.

        Raises:
          ConfigError: the actor cannot be loaded, or its agents do not fit the seats.
        """
        self._setup, self._match = setup, setup.match
        self._world, self._mailbox, self._waiter, self._log = services
        self._trainers = {link.player: link for link in trainers}
        entities, settings = self._load_games(external)
        self._config = server_config(settings, setup.row.env.num_envs, number)
        self._job_queue = JobQueue(self._match.seats, len(entities)) if setup.league else None
        self._games = Games(
            self._match.index,
            _players(entities, setup.row),
            self._job_queue,
            lambda episodes: self._mailbox.post(0, episodes),
        )
        self._connect(services, entities)
        self._workers, self._announced = tuple(setup.worker_ranks), -1
        self._closing = False

    def _load_games(self, external: ExternalSettings | None) -> tuple[Sequence[EntitySpaces], ServerConfig]:
        """Load the actor of the games; return their entities, and the settings of the server."""
        row, match = self._setup.row, self._match
        self._host: Host | None = None
        settings: ServerConfig
        if external is None:
            settings = games = GatewaySettings(**row.env.settings)
            entities: Sequence[EntitySpaces] = entities_of(games)
            self._actor, self._actor_settings = load_actor(games.actor), games.settings
        else:
            seed = derive_seed(self._setup.seed, "match", match.row, match.replica)
            settings, self._host = external, _host(row, self._external_entities(), seed)
            entities = self._host.entities
            self._actor, self._actor_settings = HostedGame, {"host": self._host}
        check_seats(
            f"match {match.index} (row {match.row} of the table)",
            row.env.use,
            [entity.name for entity in entities],
            [entity for seat in row.all_seats for entity in seat.entities],
            row.remapped,
        )
        return entities, settings

    def _external_entities(self) -> list[int]:
        return [entity for seat in self._setup.row.external for entity in seat.entities]

    def _connect(self, services: Services, entities: Sequence[EntitySpaces]) -> None:
        """Connect to the workers, and prepare the seats of games."""
        match = self._match
        seats = [tuple(entities[e] for e in seat.entities) for seat in match.seats]
        blocks = [blocks_of(each) for each in seats]
        slices = even_slices(self._setup.row.env.num_envs, 1)
        offers = SeatOffers(seats, blocks, slices, False, True, acts_on_request=True)
        setup = self._setup._replace(core_ranks=())  # a server does not share a core with its workers
        collect_requests(setup, services)  # external games have neither infos nor a global state
        self._channel = connect_seats(setup, services, offers, in_order=False)
        self._exchange = Exchange(self._channel, match.seats, blocks, entities, self._waiter, self._warn)
        self._exchange.on_acts = self._games.count_moves
        self._exchange.write_lineup = self._write_lineup
        played = [entity for seat in match.seats for entity in seat.entities]
        links = {
            entity: self._trainers[seat.player]
            for seat in match.seats
            for entity in seat.entities
            if seat.player in self._trainers
        }
        external = self._external_entities()
        self._seats = ExternalSeats(entities, played, external, self._exchange, self._games, links)

    def _warn(self, text: str) -> None:
        self._mailbox.post(0, LogLine(self._world.rank, "WARNING", text))

    def _write_lineup(self, copy: int, game: int, records: Sequence[ObservationMessage]) -> None:
        """Write the line-up of a game, before the workers read its first row."""
        lineup = self._games.lineup(game)
        if lineup is None or lineup.job is None:
            return
        if lineup.job.id > self._announced:
            self._announced = lineup.job.id
            for rank in self._workers:
                self._mailbox.deliver(rank, lineup.job)
        for record in records:
            record.lineup[copy] = lineup.number

    def serve(self) -> None:
        """Serve until the root closes the match.

        Raises:
          ConfigError: the port cannot be opened.
          HangError: a worker has not answered in time.
        """
        if self._job_queue is not None:
            self._waiter.until(self._has_job, lambda: "the first job of the league")
        np.seterr(over="ignore")  # a number that is too large for its space is refused
        _log_to(self._log)
        with self._opened() as door:
            gateway = Gateway({}, self._seats, self._config, self._actor, self._actor_settings, door.access)
            uvloop.run(self._serve(gateway, door))
        self._games.report()
        self._channel.close()
        if self._host is not None:
            self._host.close()

    def _versions(self) -> dict[str, str]:
        """Return the learned steps of each player of the match."""
        versions = {
            seat.player: self._exchange.versions[entity] for seat in self._match.seats for entity in seat.entities
        }
        return {**versions, **{player: link.version for player, link in self._trainers.items()}}

    @contextlib.contextmanager
    def _opened(self) -> Any:
        try:
            with opened(self._config) as door:
                yield door
        except ConfigError as error:
            raise ConfigError(f"match {self._match.index}, gateway: {error}") from error

    async def _serve(self, gateway: Gateway, door: Listener) -> None:
        loop, exchange = asyncio.get_running_loop(), self._exchange
        server = HttpServer(gateway, door.listening, self._config)
        gateway.connections = lambda: server.connections
        gateway.learns(exchange.is_held)
        gateway.versions = self._versions
        exchange.begin()
        serving, clock = loop.create_task(server.serve()), loop.create_task(gateway.run_maintenance())
        closed = asyncio.Event()
        reading = loop.create_task(self._look_after_mail(closed))
        failing = exchange.failed, serving, reading
        try:
            await _first(server.started(), *failing)
            await _first(exchange.begun(), closed.wait(), *failing)
            gateway.open()
            self._mailbox.post(0, GatewayOpen(self._match.index, door.url))
            self._log.info("games may come to %s", door.url)
            await _first(closed.wait(), *failing)
            await _first(gateway.drain(), *failing)
            exchange.close()
            await _first(exchange.over, exchange.failed)
        finally:
            clock.cancel()
            reading.cancel()
            server.stop()
            await asyncio.wait({serving}, timeout=2 * MAILBOX_INTERVAL + 5)

    async def _look_after_mail(self, closed: asyncio.Event) -> None:
        """Handle the orders of the root, the last of which sets ``closed``, and report, until the task is cancelled."""
        next_report = time.monotonic() + REPORT_EVERY
        while True:
            self._read_mail()
            if self._closing:
                closed.set()
            now = time.monotonic()
            if now > next_report:
                next_report = now + REPORT_EVERY
                self._games.report()
            await asyncio.sleep(MAILBOX_INTERVAL)

    def _read_mail(self) -> None:
        for link in self._trainers.values():
            replays = link.replays()
            if replays is not None:
                self._mailbox.post(link.rank, Replays(replays))
        while (mail := self._mailbox.poll(CloseMatch, RunFailed, Job, RemoteWeights)) is not None:
            if isinstance(mail[1], CloseMatch):
                self._closing = True
            elif isinstance(mail[1], RunFailed):
                self._exchange.break_off()
            elif isinstance(mail[1], RemoteWeights):
                self._trainers[mail[1].player].update(mail[1].version, mail[1].taken, mail[1].weights)
            elif self._job_queue is not None:
                self._job_queue.add(mail[1])

    def _has_job(self) -> bool:
        self._read_mail()
        return self._closing or (self._job_queue is not None and self._job_queue.ready())


def server_config(settings: ServerConfig, sessions: int, number: int) -> GatewayConfig:
    """Return the limits of a server for ``sessions`` games; the ``number``-th of its node has a port of its own."""
    known = {name: value for name, value in settings.model_dump().items() if name in ServerConfig.model_fields}
    port = settings.port + number if settings.port else 0
    return GatewayConfig(**{**known, "sessions": sessions, "port": port})


def _host(row: TableRow, external: Sequence[int], seed: int) -> Host:
    def make() -> Environment:
        return registry.make_environment(**row.env.construction)

    first = make()
    host = Host(make, first.entities, [number for number in external if number < len(first.entities)], seed)
    host.release(first)
    return host


def _players(entities: Sequence[EntitySpaces], row: TableRow) -> list[str]:
    players = ["(random)"] * len(entities)
    for seat in row.all_seats:
        for entity in seat.entities:
            players[entity] = seat.player
    return players


def _log_to(log: logging.Logger) -> None:
    """Write the server's log records to this rank's log."""
    for name in ("arena.gateway", "arena.access"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = list(log.handlers), False
        logger.setLevel(logging.INFO)


async def _first(*waits: Awaitable[Any]) -> None:
    """Return once the first one is done, and raise its exception."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task, awaited in zip(tasks, waits, strict=True):
        if task not in done and task is not awaited:
            task.cancel()
    for task in done:
        task.result()
