"""Evaluations while training: the loop of the evaluator, a child process of the root or a rank of its own."""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from arena.common.errors import ConfigError, GivenUpError
from arena.common.seeding import derive_seed
from arena.common.waiting import Pacer, Waiter
from arena.comms import Mailbox
from arena.config.resumed import load_stored_config
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.envs.interface import Environment
from arena.evaluation.evaluate import seat_names
from arena.evaluation.play import Result, play
from arena.evaluation.players import Contestant, find_contestant, make_copy, seed_libraries, take_seats
from arena.evaluation.results import tally
from arena.protocol.evaluation import EvaluationReport, EvaluationRequest, StopEvaluating
from arena.records.run_directory import RunDirectory
from arena.system.processes import die_with_parent

COPIES = 8
"""Largest number of environments at the same time."""

ALIVE_EVERY = 1.0
"""Seconds between two reports of an evaluation in progress."""

POLL_EVERY = 0.1
"""Seconds between two polls of the mailbox of an evaluating rank."""

PRIORITY = 19
"""Niceness of the child process: the ranks on its node come first, also where all cores are busy."""


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
        results: list[Result] = []
        try:
            for number, row in enumerate(self._config.evaluated_rows()):
                results += self._play(number, row, weights)
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

    def _play(self, number: int, row: TableRow, weights: Mapping[str, str]) -> list[Result]:
        names = seat_names(row, self._section.seats, self._config)
        if not weights.keys() & set(names):
            return []
        seed = derive_seed(self._seed, "row", number)
        seed_libraries(seed)
        copies = self._copies.get(number) or self._make_copies(number, row)
        by_name = {name: self._contestant(name, weights) for name in names}
        seated = [by_name[name] for name in names]
        agents = take_seats(row, seated, copies, seed, deterministic=self._section.deterministic)
        return list(play(copies, agents, self._section.episodes, seed, lambda copy, over: self._on_step()))

    def _make_copies(self, number: int, row: TableRow) -> list[Environment]:
        copies = self._copies[number] = []
        for _ in range(min(COPIES, self._section.episodes)):
            copies.append(make_copy(row))  # noqa: PERF401 (``close`` closes those made before a failure)
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


def main() -> None:
    """Evaluate what arrives on standard input, a request in each line, until it ends; report on standard output."""
    die_with_parent(signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # the root decides
    os.nice(PRIORITY)
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever users' code prints goes to the log
    last = time.monotonic()

    def report(content: EvaluationReport) -> None:
        nonlocal last
        last = time.monotonic()
        print(json.dumps(content._asdict()), file=reports, flush=True)

    def on_step() -> None:
        if time.monotonic() > last + ALIVE_EVERY:
            report(EvaluationReport(evaluator.number, None))

    run = RunDirectory.existing(sys.argv[1])
    evaluator = Evaluator(run, load_stored_config(run.config), on_step)
    sys.argv = sys.argv[:1]
    for line in sys.stdin:
        report(evaluator.evaluate(EvaluationRequest(**json.loads(line))))
    evaluator.close()


def serve_requests(run: RunDirectory, config: RunConfig, mailbox: Mailbox, waiter: Waiter) -> None:
    """Evaluate as a rank of a run what the root requests, until it sends ``StopEvaluating``.

    Args:
      run: the run directory.
      config: configuration of the run.
      mailbox: mailbox of this rank.
      waiter: the rank's waits.
    """
    polling, alive = Pacer(POLL_EVERY), Pacer(ALIVE_EVERY)

    def on_step() -> None:
        if polling.due():
            waiter.check()
            if mailbox.poll(StopEvaluating) is not None:
                raise Interrupted
        if alive.due():
            mailbox.post(0, EvaluationReport(evaluator.number, None))

    evaluator = Evaluator(run, config, on_step)
    with contextlib.suppress(Interrupted):
        while True:
            mail = mailbox.poll(EvaluationRequest, StopEvaluating)
            if mail is None:
                waiter.check()
                time.sleep(POLL_EVERY)
            elif isinstance(mail[1], StopEvaluating):
                break
            else:
                mailbox.post(0, evaluator.evaluate(mail[1]))
    evaluator.close()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # the root has ended
        main()
