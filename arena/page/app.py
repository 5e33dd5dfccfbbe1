"""The application behind the page: its routes, all of which read."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from arena.common.errors import ConfigError
from arena.page.access import Guard
from arena.page.answers import FILMS, Answers, films
from arena.page.encoding import encode
from arena.page.runs import Catalogue
from arena.page.source import Source

STATIC = Path(__file__).parent / "static"
"""The front end."""

MAX_OPEN = 32
"""Number of runs with records that stay open: of more, each is opened when it is read."""

COMPRESSED = 100_000
"""Bytes from which a response is compressed: over ``ssh -L`` the transfer of a league would take seconds."""

MAX_PLAYERS = 16
"""Number of players that one request for curves may name."""


REQUESTS: dict[str, Callable[[Answers, QueryParams], Any]] = {
    "runs": lambda answers, _: answers.runs(),
    "names": lambda answers, _: answers.names(),
    "curves": lambda answers, query: answers.curves(
        _run(query), query.getlist("player")[:MAX_PLAYERS], query.get("since", "")
    ),
    "league": lambda answers, query: answers.league(_run(query), query.get("since", "")),
    "machine": lambda answers, query: answers.machine(_run(query)),
    "matches": lambda answers, query: answers.matches(_run(query)),
    "episodes": lambda answers, query: answers.episodes(
        _run(query), query.get("player", ""), query.get("order", "newest"), _number(query.get("before"))
    ),
    "log": lambda answers, query: answers.log(
        _run(query), query.get("file", ""), _number(query.get("start")), _number(query.get("before"))
    ),
    "configuration": lambda answers, query: answers.configuration(_run(query)),
}
"""Requests by the last part of their path: functions of the answers and the query."""


class Page:
    """Answers the requests of all browsers, with one thread that reads.

    One thread: each run has one connection to its records, however many browsers look, and at most one reader at a time
    keeps the root of a run from writing.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        """Serve the runs of a catalogue."""
        self._answers = Answers(catalogue)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="page-reader")
        self._reading: dict[str, asyncio.Task] = {}

    def app(self, token: str | None, cookie: str, hosts: Sequence[str] = ()) -> Guard:
        """Return the ASGI application; see ``Guard`` for the arguments."""
        routes = [
            Route("/", lambda _request: FileResponse(STATIC / "index.html")),
            *(Route(f"/api/{name}", self._answer(read)) for name, read in REQUESTS.items()),
            Route("/films/{run:path}/{name}", self._film),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        return Guard(Starlette(routes=routes, lifespan=self._lifespan), token, cookie, hosts)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        yield
        for task in self._reading.values():
            task.cancel()
        await self._in_thread(self._answers.close)  # SQLite's connections are closed by the thread that opened them
        self._thread.shutdown()

    def _answer(self, read: Callable[[Answers, QueryParams], Any]) -> Callable[[Request], Any]:
        """Return an endpoint that calls ``read`` in the thread, and encodes the result there."""

        async def endpoint(request: Request) -> Response:
            def body() -> tuple[bytes, int]:
                self._answers.refresh()
                try:
                    answer = encode(read(self._answers, request.query_params))
                    return _compressed(answer, request, headers), 200
                except LookupError as error:
                    return encode({"error": str(error.args[0])}), 404
                except ConfigError as error:
                    return encode({"error": str(error)}), 409

            headers = {"cache-control": "no-store"}
            content, status = await self._in_thread(body)
            self._read_in_background(request.query_params.get("run"))
            return Response(content, status, media_type="application/json", headers=headers)

        return endpoint

    async def _film(self, request: Request) -> Response:
        """Return a film; its name is one of those in the directory, and no path."""
        run, name = request.path_params["run"], request.path_params["name"]

        def path() -> Path | None:
            self._answers.refresh()
            source = self._answers.sources.get(run)
            return source.run.films / name if source is not None and name in films(source) else None

        found = await self._in_thread(path)
        if found is None:
            return PlainTextResponse("expected the name of a film of a run\n", 404)
        return FileResponse(found, media_type=FILMS[found.suffix], headers={"cache-control": "no-store"})

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    # Reading in the background --------------------------------------------------------------------------------------

    def _read_in_background(self, name: str | None) -> None:
        """Begin to read, in the background, what a run has recorded since, or all runs."""
        for other, source in self._answers.sources.items():
            task = self._reading.get(other)
            if name in (None, other) and (task is None or task.done()):
                self._reading[other] = asyncio.create_task(self._read_all(source))

    async def _read_all(self, source: Source) -> None:
        """Read all rows of a run, piece by piece, so that requests are answered in between."""
        with contextlib.suppress(ConfigError):  # the requests report it
            while await self._in_thread(source.read_next):
                pass
        if len(self._answers.sources) > MAX_OPEN:
            await self._in_thread(source.close)


def _run(query: QueryParams) -> str:
    return query.get("run", "")


def _number(text: str | None) -> int | None:
    """Return a whole number of an address; None if it is missing or none."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 19 else None


def _compressed(content: bytes, request: Request, headers: dict[str, str]) -> bytes:
    """Return a large response compressed, with its header added to ``headers``, if the browser accepts that."""
    if len(content) < COMPRESSED or "gzip" not in request.headers.get("accept-encoding", ""):
        return content
    headers["content-encoding"] = "gzip"
    return gzip.compress(content, 1)
