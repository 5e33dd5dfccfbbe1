"""The environment process of a match whose games are outside: an HTTP server in place of copies of an environment."""

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
from arena.common.waiting import Waiter
from arena.comms import Mailbox, World
from arena.config.gateway import ExternalSettings, GatewayConfig, GatewaySettings, ServerConfig
from arena.config.run import TableRow
from arena.environment.handshake import SeatOffers, connect_seats
from arena.environment.job_queue import JobQueue
from arena.envs.interface import EntitySpaces, Environment
from arena.gateway.actors.seats import load_actor
from arena.gateway.app import Gateway
from arena.gateway.http import HttpServer
from arena.gateway.server import Listener, opened
from arena.gateway.training.agents import ExternalSeats
from arena.gateway.training.exchange import Exchange
from arena.gateway.training.games import Games
from arena.gateway.training.hosted import Host, HostedGame
from arena.gateway.training.remote_agents import RemoteLink
from arena.gateway.training.spaces import entities_of
from arena.plan.layout import Match
from arena.plan.seats import check_seats
from arena.protocol.messages import CloseMatch, GatewayOpen, Job, LogLine, RemoteWeights, Replays, RunFailed
from arena.protocol.wire import ObservationMessage, blocks_of

MAILBOX_INTERVAL = 0.05
"""Seconds between two looks into the mailbox."""

REPORT_EVERY = 1.0
"""Seconds between two reports of games that are over."""


class GatewayProcess:
    """Serves one match until the root closes it."""

    def __init__(
        self,
        world: World,
        mailbox: Mailbox,
        waiter: Waiter,
        *,
        match: Match,
        worker_ranks: Sequence[int],
        row: TableRow,
        seed: int,
        log: logging.Logger,
        external: ExternalSettings | None = None,
        trainers: Sequence[RemoteLink] = (),
        league: bool = False,
        number: int = 0,
    ) -> None:
        """Offer the workers their seats.

        Args:
          world: all ranks.
          mailbox: to the root.
          waiter: says how long workers may take.
          match: which one it serves.
          worker_ranks: of its seats.
          row: of the table.
          seed: what random streams derive from.
          log: of this rank.
          external: the server at which somebody takes a seat; None where the games themselves are outside.
          trainers: the ways to those of its workers whose policy learns from what actors push.
          league: whether a league says who plays.
          number: of this match among those of its node that want the same port: it takes the port so much above.

        Raises:
          ConfigError: the actor cannot be loaded, or its agents do not fit the seats.
        """
        self._world, self._mailbox, self._waiter, self._match, self._log = world, mailbox, waiter, match, log
        self._host: Host | None = None
        outside = [entity for seat in row.external for entity in seat.entities]
        settings: ServerConfig
        if external is None:
            settings = outside_settings = GatewaySettings(**row.env.settings)
            entities = entities_of(outside_settings)
            self._actor, self._actor_settings = load_actor(outside_settings.actor), outside_settings.settings
        else:
            settings, self._host = external, _host(row, outside, derive_seed(seed, "match", match.row, match.replica))
            entities = self._host.entities
            self._actor, self._actor_settings = HostedGame, {"host": self._host}
        self._config = server_config(settings, row.env.num_envs, number)
        check_seats(
            f"match {match.index} (row {match.row} of the table)",
            row.env.use,
            [entity.name for entity in entities],
            [entity for seat in row.all_seats for entity in seat.entities],
            row.remapped,
        )
        self._job_queue = JobQueue(match.seats, len(entities)) if league else None
        self._games = Games(
            match.index, _players(entities, row), self._job_queue, lambda episodes: mailbox.post(0, episodes)
        )
        seats = [tuple(entities[e] for e in seat.entities) for seat in match.seats]
        blocks = [blocks_of(each) for each in seats]
        offer = SeatOffers(seats, blocks, even_slices(row.env.num_envs, 1), False, True, acts_on_request=True)
        self._channel, _ = connect_seats(
            world, mailbox, waiter, match, worker_ranks, offer, in_order=False, core_ranks=()
        )
        self._exchange = Exchange(self._channel, match.seats, blocks, entities, waiter, self._warn)
        self._exchange.on_acts = self._games.count_moves
        self._exchange.write_lineup = self._write_lineup
        played = [entity for seat in match.seats for entity in seat.entities]
        self._trainers = {link.player: link for link in trainers}
        links = {
            entity: self._trainers[seat.player]
            for seat in match.seats
            for entity in seat.entities
            if seat.player in self._trainers
        }
        self._seats = ExternalSeats(entities, played, outside, self._exchange, self._games, links)
        self._workers, self._announced = tuple(worker_ranks), -1
        self._closing = False

    def _warn(self, text: str) -> None:
        self._mailbox.post(0, LogLine(self._world.rank, "WARNING", text))

    def _write_lineup(self, copy: int, game: int, records: Sequence[ObservationMessage]) -> None:
        """Say who plays a game, before the workers read of it."""
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
        np.seterr(over="ignore")  # a number that is too large for its space is found and refused
        _log_to(self._log)
        with self._opened() as door:
            gateway = Gateway({}, self._seats, self._config, self._actor, self._actor_settings, door.access)
            uvloop.run(self._serve(gateway, door))
        self._games.report()
        self._channel.close()
        if self._host is not None:
            self._host.close()

    def _versions(self) -> dict[str, str]:
        """Return how far each player of the match has learned."""
        found = {seat.player: self._exchange.versions[entity] for seat in self._match.seats for entity in seat.entities}
        return {**found, **{player: link.version for player, link in self._trainers.items()}}

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
        """Read the orders of the root, whose last one sets ``closed``, and report, until the task is cancelled."""
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
    """Return the limits of a server for so many sessions; the ``number``-th of its node takes a port of its own."""
    known = {name: value for name, value in settings.model_dump().items() if name in ServerConfig.model_fields}
    port = settings.port + number if settings.port else 0
    return GatewayConfig(**{**known, "sessions": sessions, "port": port})


def _host(row: TableRow, external: Sequence[int], seed: int) -> Host:
    wrappers = [(wrapper.use, wrapper.settings) for wrapper in row.env.wrappers]

    def make() -> Environment:
        return registry.make_environment(row.env.use, row.env.settings, wrappers)

    first = make()
    host = Host(make, first.entities, [number for number in external if number < len(first.entities)], seed)
    host.give_back(first)
    return host


def _players(entities: Sequence[EntitySpaces], row: TableRow) -> list[str]:
    players = ["(random)"] * len(entities)
    for seat in row.all_seats:
        for entity in seat.entities:
            players[entity] = seat.player
    return players


def _log_to(log: logging.Logger) -> None:
    """Have the server's lines in this rank's log."""
    for name in ("arena.gateway", "arena.access"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = list(log.handlers), False
        logger.setLevel(logging.INFO)


async def _first(*waits: Awaitable[Any]) -> None:
    """Return once the first one is done, and raise what it raises."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task, awaited in zip(tasks, waits, strict=True):
        if task not in done and task is not awaited:
            task.cancel()
    for task in done:
        task.result()
