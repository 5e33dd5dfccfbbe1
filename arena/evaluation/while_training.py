"""An evaluation while training: the configured episodes with given weights, always with the same seeds."""

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from arena.common.copies.placeholders import EVALUATION, CopyPlace
from arena.common.errors import ConfigError, GivenUpError
from arena.common.seeding import derive_seed
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.envs.interface import Environment
from arena.evaluation.evaluate import seat_names
from arena.evaluation.play import Result, play
from arena.evaluation.players import Contestant, find_contestant, make_copy, one_thread, seed_libraries, take_seats
from arena.evaluation.results import tally
from arena.protocol.evaluation import EvaluationReport, EvaluationRequest
from arena.records.run_directory import RunDirectory

COPIES = 8
"""Largest number of environments at the same time."""


class Interrupted(Exception):
    """The evaluation in progress is to end without a result."""


class Evaluator:
    """Plays the learning players of a run, always with the same seeds.

    The environments are kept between evaluations. They are the evaluator's own, so nothing of the training depends on
    whether, or when, an evaluation takes place.

    Attributes:
      number: number of the current or last request.
    """

    def __init__(self, run: RunDirectory, config: RunConfig, on_step: Callable[[], None]) -> None:
        """Prepare.

        Args:
          run: the run directory.
          config: configuration of the run, with the key ``evaluate``.
          on_step: called after each environment step; may raise ``Interrupted``.
        """
        assert config.evaluate is not None
        self._run, self._config, self._section = run, config, config.evaluate
        self._seed = derive_seed(config.seed, "evaluate")
        self._on_step = on_step
        self.number = 0
        self._copies: dict[int, list[Environment]] = {}

    def evaluate(self, request: EvaluationRequest) -> EvaluationReport:
        """Return the returns of the requested players in the configured episodes, or why there are none."""
        self.number, weights = request
        began = time.monotonic()
        try:
            results = self.play(weights)
        except Interrupted:
            raise
        except (ConfigError, GivenUpError) as error:
            self.close()
            return EvaluationReport(self.number, {}, time.monotonic() - began, str(error))
        except Exception as error:
            self.close()
            return EvaluationReport(self.number, {}, time.monotonic() - began, f"{type(error).__name__}: {error}")
        returns = {name: each.returns for name, each in tally(results).items() if name in weights}
        return EvaluationReport(self.number, returns, time.monotonic() - began)

    def play(self, weights: Mapping[str, str]) -> list[Result]:
        """Return the configured episodes of all rows with these players.

        Args:
          weights: learning player -> path of its weights file.

        Raises:
          ConfigError: a policy cannot play, or has no weights.
          GivenUpError: an environment has failed too often.
        """
        results: list[Result] = []
        with one_thread():
            for number, row in enumerate(self._config.evaluated_rows()):
                results += self._play(number, row, weights)
        return results

    def _play(self, number: int, row: TableRow, weights: Mapping[str, str]) -> list[Result]:
        names = seat_names(row, self._section.seats, self._config)
        if not weights.keys() & set(names):
            return []
        seed = derive_seed(self._seed, "row", number)
        copies = self._copies.get(number) or self._make_copies(number, row)
        seed_libraries(seed)  # after the copies, which only the first evaluation makes
        by_name = {name: self._contestant(name, weights) for name in names}
        seated = [by_name[name] for name in names]
        agents = take_seats(row, seated, copies, seed, deterministic=self._section.deterministic)
        return list(play(copies, agents, self._section.episodes, seed, lambda copy, over: self._on_step()))

    def _make_copies(self, number: int, row: TableRow) -> list[Environment]:
        copies = self._copies[number] = []
        first = CopyPlace(EVALUATION + number * COPIES, seed=self._seed)
        for copy in range(min(COPIES, self._section.episodes)):
            copies.append(make_copy(row, place=first.after(copy)))  # noqa: PERF401 (``close`` closes all after a failure)
        return copies

    def _contestant(self, name: str, weights: Mapping[str, str]) -> Contestant:
        if name not in weights:
            return find_contestant(self._run, self._config, name)
        return Contestant(name, self._config.players[name], Path(weights[name]), self._run.players / name)

    def close(self) -> None:
        """Close the environments; the next evaluation makes new ones."""
        for environment in [each for copies in self._copies.values() for each in copies]:
            with contextlib.suppress(Exception):  # it may be what has failed
                environment.close()
        self._copies.clear()
