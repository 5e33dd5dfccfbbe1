"""Evaluations while training: the loop of the evaluator, a child process of the root or a rank of its own."""

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from arena.common import registry
from arena.common.waiting import Pacer, Waiter
from arena.comms import Mailbox
from arena.config.resumed import load_stored_config
from arena.config.run import RunConfig
from arena.evaluation.while_training import Evaluator, Interrupted
from arena.protocol.evaluation import EvaluationReport, EvaluationRequest, StopEvaluating
from arena.records.run_directory import RunDirectory
from arena.system.output_file import OutputFile
from arena.system.processes import die_with_parent
from arena.system.surroundings import settle

ALIVE_EVERY = 1.0
"""Seconds between two reports of an evaluation in progress."""

POLL_EVERY = 0.1
"""Seconds between two polls of the mailbox of an evaluating rank."""

PRIORITY = 19
"""Niceness of the child process: the ranks on its node come first, also where all cores are busy."""


def main() -> None:
    """Evaluate what arrives on standard input, a request in each line, until it ends; report on standard output."""
    die_with_parent(signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # the root decides
    os.nice(PRIORITY)
    settle()
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    OutputFile(Path(sys.argv[2]), shared=True)  # whatever users' code prints goes to the log
    last = time.monotonic()

    def report(content: EvaluationReport) -> None:
        nonlocal last
        last = time.monotonic()
        print(json.dumps(content._asdict()), file=reports, flush=True)

    def on_step() -> None:
        if time.monotonic() > last + ALIVE_EVERY:
            report(EvaluationReport(evaluator.number, None))

    run = RunDirectory.existing(sys.argv[1])
    config = load_stored_config(run.config)
    with contextlib.suppress(Exception):  # which the first evaluation reports
        for policy in config.players.values():
            registry.policy_class(policy.use)  # imports torch, which does not count as evaluating
    evaluator = Evaluator(run, config, on_step)
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
