"""Answers to the requests of the page as JSON values: one method for each, for a server and for a saved page."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arena.common.errors import ConfigError
from arena.page.configuration import read_configuration
from arena.page.episodes import read_episodes
from arena.page.logs import read_log
from arena.page.machine import read_machine
from arena.page.matches import read_matches
from arena.page.runs import Catalogue, StateReader, describe
from arena.page.source import Source, name_of
from arena.records.readers.run import Attempt

FILMS = {".gif": "image/gif", ".mp4": "video/mp4"}
"""Suffix of films -> media type."""


def films(source: Source) -> list[str]:
    """Return the names of a run's films, the newest first."""
    try:
        found = [path for path in source.run.films.iterdir() if path.suffix in FILMS and not path.is_symlink()]
        found.sort(key=lambda path: (-path.stat().st_mtime, path.name))
    except OSError:
        return []
    return [path.name for path in found if not path.name.startswith("part-")]


class Answers:
    """Answers requests about the runs of a catalogue; all calls come from one thread.

    Every method with the name of a run raises LookupError if there is none of this name, and ConfigError if its records
    cannot be read.

    Attributes:
      sources: the runs by name, as of the last ``refresh``.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        """Answer for the runs of a catalogue."""
        self.sources: dict[str, Source] = {}
        self._catalogue = catalogue
        self._states = StateReader()

    def refresh(self) -> None:
        """Look for runs that have begun since."""
        self.sources = dict(self._catalogue.sources())

    def close(self) -> None:
        """Close the records of all runs."""
        for source in self.sources.values():
            source.close()

    def source(self, name: str) -> Source:
        """Return a run."""
        if name not in self.sources:
            raise LookupError(f"there is no run {name!r}; there are: {', '.join(self.sources) or 'none'}")
        return self.sources[name]

    def _state(self, source: Source) -> dict[str, Any]:
        return self._states.state(source.run, source.attempts(), source.faults())

    def runs(self) -> dict[str, Any]:
        """Return a line for each run."""
        return {"runs": [describe(name, source, self._states) for name, source in self.sources.items()]}

    def names(self) -> dict[str, Any]:
        """Return the names of all runs."""
        return {"names": list(self.sources)}

    def curves(self, run: str, players: Sequence[str], since: str = "") -> dict[str, Any]:
        """Return the curves of some players, as far as they have changed since ``since``, that of an earlier answer.

        ``players`` are all players of the run; they come when they have changed.
        """
        source = self.source(run)
        source.read_next()
        infos, curves = source.players(), source.curves
        generation, stamp, players_stamp = (*since.split("."), "", "")[:3]
        known = generation == curves.generation and stamp.isdecimal()
        attempts, faults = source.attempts(), source.faults()
        series = list(curves.changes(players, int(stamp) if known else -1))
        answer = {
            **self._states.state(source.run, attempts, faults),
            "since": f"{curves.generation}.{curves.stamp}.{source.players_stamp}",
            "whole": not known,
            "progress": curves.progress,
            "attempts": attempts,
            "faults": faults,
            "evaluations": {name: found for name, found in source.evaluations().items() if name in players},
            "series": series,
        }
        if not known or players_stamp != str(source.players_stamp):  # thousands of them cost more than what is new
            answer["players"] = [{"name": name, **info} for name, info in infos.items()]
        return answer

    def league(self, run: str, since: str = "") -> dict[str, Any]:
        """Return the league of a run; without it if it has not changed since ``since``."""
        source = self.source(run)
        source.read_next()
        league = source.league()
        version = f"{source.curves.generation}.{source.leagues.version}"
        answer = {**self._state(source), "since": version, "progress": source.curves.progress}
        return answer if version == since else answer | {"league": league}

    def machine(self, run: str) -> dict[str, Any]:
        """Return the ranks of a run."""
        source = self.source(run)
        with source.records() as connection:
            return {**self._state(source), **read_machine(connection, source.run)}

    def matches(self, run: str) -> dict[str, Any]:
        """Return the matches of a run."""
        source = self.source(run)
        source.read_next()
        with source.records() as connection:
            matches = read_matches(connection, source.run, source.curves.matches)
        return {**self._state(source), "progress": source.curves.progress, **matches}

    def episodes(self, run: str, player: str, order: str = "newest", before: int | None = None) -> dict[str, Any]:
        """Return episodes of a player; see ``read_episodes``."""
        source = self.source(run)
        with source.records() as connection:
            found = read_episodes(connection, player, order, before)
        return {**self._state(source), "players": list(source.players()), "films": films(source), **found}

    def log(self, run: str, file: str = "", start: int | None = None, before: int | None = None) -> dict[str, Any]:
        """Return a piece of a log; see ``read_log``."""
        return read_log(self.source(run).run, file, start, before)

    def configuration(self, run: str) -> dict[str, Any]:
        """Return the configuration of a run, with what a command to repeat it needs."""
        source = self.source(run)
        directory = source.run.path
        shown = Path(name_of(directory)) if directory.is_absolute() else directory
        attempts: list[Attempt] = []
        with contextlib.suppress(ConfigError):  # a run without records has a configuration all the same
            attempts = source.attempts()
        return {
            **read_configuration(source.run.config),
            "path": str(shown / source.run.config.name),
            "ranks": attempts[-1].ranks if attempts else None,
        }
