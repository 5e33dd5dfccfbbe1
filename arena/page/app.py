"""The application behind the page: its routes, all of which read."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from arena.common.errors import ConfigError
from arena.page.access import Guard
from arena.page.configuration import read_configuration
from arena.page.encoding import encode
from arena.page.episodes import read_episodes
from arena.page.logs import read_log
from arena.page.machine import read_machine
from arena.page.matches import read_matches
from arena.page.runs import Catalogue, StateReader, describe
from arena.page.source import Source, name_of
from arena.records.reader import Attempt

STATIC = Path(__file__).parent / "static"
"""The front end."""

MAX_OPEN = 32
"""Runs whose records stay open: of more, each is opened when it is read."""

COMPRESSED = 100_000
"""Bytes from which a response is compressed: over ``ssh -L`` the transfer of a league would take seconds."""

MAX_PLAYERS = 16
"""Players whose curves one request may name."""


class Page:
    """Answers the requests of all browsers, with one thread that reads.

    One thread: each run has one connection to its records, however many browsers look, and at most one reader at a time
    keeps the root of a run from writing.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        """Serve the runs of a catalogue."""
        self._catalogue = catalogue
        self._states = StateReader()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="page-reader")
        self._sources: dict[str, Source] = {}
        self._reading: dict[str, asyncio.Task] = {}

    def app(self, token: str | None, cookie: str, hosts: Sequence[str] = ()) -> Guard:
        """Return the ASGI application; see ``Guard`` for the arguments."""
        routes = [
            Route("/", lambda _request: FileResponse(STATIC / "index.html")),
            Route("/api/runs", self._answer(self._runs)),
            Route("/api/names", self._answer(self._names)),
            Route("/api/curves", self._answer(self._curves)),
            Route("/api/league", self._answer(self._league)),
            Route("/api/machine", self._answer(self._machine)),
            Route("/api/matches", self._answer(self._matches)),
            Route("/api/episodes", self._answer(self._episodes)),
            Route("/api/log", self._answer(self._log)),
            Route("/api/configuration", self._answer(self._configuration)),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        return Guard(Starlette(routes=routes, lifespan=self._lifespan), token, cookie, hosts)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        yield
        for task in self._reading.values():
            task.cancel()
        await self._in_thread(self._close)
        self._thread.shutdown()

    def _close(self) -> None:
        for source in self._sources.values():  # SQLite's connections are closed by the thread that has opened them
            source.close()

    def _answer(self, read: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Return an endpoint that calls ``read`` in the thread, and encodes the result there."""

        async def endpoint(request: Request) -> Response:
            def body() -> tuple[bytes, int]:
                self._sources = dict(self._catalogue.sources())
                try:
                    return _compressed(encode(read(request)), request, headers), 200
                except LookupError as error:
                    return encode({"error": str(error.args[0])}), 404
                except ConfigError as error:
                    return encode({"error": str(error)}), 409

            headers = {"cache-control": "no-store"}
            content, status = await self._in_thread(body)
            self._read_on(request.query_params.get("run"))
            return Response(content, status, media_type="application/json", headers=headers)

        return endpoint

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    # Reading in the background --------------------------------------------------------------------------------------

    def _read_on(self, name: str | None) -> None:
        """Begin to read, in the background, what a run has recorded since, or all runs."""
        for other, source in self._sources.items():
            task = self._reading.get(other)
            if name in (None, other) and (task is None or task.done()):
                self._reading[other] = asyncio.create_task(self._read_all(source))

    async def _read_all(self, source: Source) -> None:
        """Read all rows of a run, piece by piece, so that requests are answered in between."""
        with contextlib.suppress(ConfigError):  # the requests report it
            while await self._in_thread(source.read_on):
                pass
        if len(self._sources) > MAX_OPEN:
            await self._in_thread(source.close)

    # Requests -------------------------------------------------------------------------------------------------------

    def _source(self, request: Request) -> Source:
        """Return the run that a request names."""
        name = request.query_params.get("run", "")
        if name not in self._sources:
            raise LookupError(f"there is no run {name!r}; there are: {', '.join(self._sources) or 'none'}")
        return self._sources[name]

    def _runs(self, _request: Request) -> dict[str, Any]:
        return {"runs": [describe(name, source, self._states) for name, source in self._sources.items()]}

    def _curves(self, request: Request) -> dict[str, Any]:
        """Return the curves of some players, as far as they have changed since ``since`` (generation.stamp)."""
        source = self._source(request)
        source.read_on()
        players = source.players()
        curves = source.curves
        generation, _, stamp = request.query_params.get("since", "").partition(".")
        known = generation == curves.generation and stamp.isdecimal()
        attempts, faults = source.attempts(), source.faults()
        chosen = request.query_params.getlist("player")[:MAX_PLAYERS]
        series = list(curves.changes(chosen, int(stamp) if known else -1))
        return {
            **self._states.state(source.run, attempts, faults),
            "since": f"{curves.generation}.{curves.stamp}",
            "whole": not known,
            "progress": curves.progress,
            "players": [{"name": name, **info} for name, info in players.items()],
            "attempts": attempts,
            "faults": faults,
            "evaluations": {name: series for name, series in source.evaluations().items() if name in chosen},
            "series": series,
        }

    def _state(self, source: Source) -> dict[str, Any]:
        return self._states.state(source.run, source.attempts(), source.faults())

    def _machine(self, request: Request) -> dict[str, Any]:
        source = self._source(request)
        with source.records() as connection:
            return {**self._state(source), **read_machine(connection, source.run)}

    def _matches(self, request: Request) -> dict[str, Any]:
        source = self._source(request)
        source.read_on()
        with source.records() as connection:
            matches = read_matches(connection, source.run, source.curves.matches)
        return {**self._state(source), "progress": source.curves.progress, **matches}

    def _episodes(self, request: Request) -> dict[str, Any]:
        source, query = self._source(request), request.query_params
        with source.records() as connection:
            found = read_episodes(
                connection, query.get("player", ""), query.get("order", "newest"), _number(query.get("before"))
            )
        return {**self._state(source), "players": list(source.players()), **found}

    def _log(self, request: Request) -> dict[str, Any]:
        source, query = self._source(request), request.query_params
        start, before = _number(query.get("start")), _number(query.get("before"))
        return read_log(source.run, query.get("file", ""), start, before)

    def _configuration(self, request: Request) -> dict[str, Any]:
        source = self._source(request)
        directory = source.run.path
        shown = Path(name_of(directory)) if directory.is_absolute() else directory
        attempts: list[Attempt] = []
        with contextlib.suppress(ConfigError):  # a run without records has a configuration all the same
            attempts = source.attempts()
        ranks = attempts[-1].ranks if attempts else None
        return {**read_configuration(source.run.config), "path": str(shown / source.run.config.name), "ranks": ranks}

    def _names(self, _request: Request) -> dict[str, Any]:
        return {"names": list(self._sources)}

    def _league(self, request: Request) -> dict[str, Any]:
        """Return the league of a run; without it if it has not changed since ``since``."""
        source = self._source(request)
        source.read_on()
        found = source.league()
        since = f"{source.curves.generation}.{source.leagues.version}"
        answer = {
            **self._state(source),
            "since": since,
            "progress": source.curves.progress,
        }
        return answer if since == request.query_params.get("since") else answer | {"league": found}


def _number(text: str | None) -> int | None:
    """Return a whole number of an address; None if it is missing or none."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 19 else None


def _compressed(content: bytes, request: Request, headers: dict[str, str]) -> bytes:
    """Return a large response compressed, with its header added to ``headers``, if the browser accepts that."""
    if len(content) < COMPRESSED or "gzip" not in request.headers.get("accept-encoding", ""):
        return content
    headers["content-encoding"] = "gzip"
    return gzip.compress(content, 1)
