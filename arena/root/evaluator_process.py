"""The two processes that evaluate for the root: a child at low priority, or a rank of the run."""

import contextlib
import json
import os
import subprocess
import sys
from typing import IO

from arena.comms import Mailbox
from arena.protocol.evaluation import EvaluationReport, EvaluationRequest, StopEvaluating
from arena.records.run_directory import RunDirectory
from arena.system.launcher_env import without_mpi

MODULE = "arena.evaluation.evaluator"
ENDED_WITHIN = 2.0
"""Seconds that the child has to end by itself, between two evaluations."""


class ChildEvaluator:
    """A child process of the root; it is started with the first evaluation, and again after it was given up."""

    def __init__(self, run: RunDirectory) -> None:
        """Store the run directory; the log of the child is ``log/evaluator.log``."""
        self._run = run
        self._child: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._unread = b""
        self._number = 0

    def start(self, request: EvaluationRequest) -> None:
        """See ``EvaluatorProcess``."""
        self._number = request.number
        if self._child is not None and self._child.poll() is not None:
            self._end(self._child)
            self._child = None
        if self._child is None:
            self._child = self._start_child()
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which ``poll`` reports
            self._child.stdin.write(json.dumps(request._asdict()).encode() + b"\n")
            self._child.stdin.flush()

    def _start_child(self) -> "subprocess.Popen[bytes]":
        self._unread = b""
        self._log = self._log or open(self._run.log / "evaluator.log", "ab")  # noqa: SIM115 (until ``close``)
        child = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(self._run.path), self._log.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**without_mpi(os.environ), "OMP_NUM_THREADS": "1"},
        )
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), False)
        return child

    def poll(self) -> EvaluationReport | None:
        """See ``EvaluatorProcess``."""
        assert self._child is not None and self._child.stdout is not None
        with contextlib.suppress(BlockingIOError):
            self._unread += os.read(self._child.stdout.fileno(), 1 << 20)
        line, newline, rest = self._unread.partition(b"\n")
        if newline:
            self._unread = rest
            return EvaluationReport(**json.loads(line))
        if self._child.poll() is None:
            return None
        code = self._child.returncode
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        return EvaluationReport(
            self._number, {}, 0.0, f"the evaluator has ended with {ended}; see {self._run.log / 'evaluator.log'}"
        )

    def give_up(self) -> None:
        """See ``EvaluatorProcess``."""
        if self._child is not None:
            self._child.kill()
            self._end(self._child)
            self._child = None

    def end_round(self) -> bool:
        """See ``EvaluatorProcess``; the child is unaffected."""
        return False

    def close(self) -> None:
        """See ``EvaluatorProcess``."""
        if self._child is not None:
            assert self._child.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._child.stdin.close()
            try:
                self._child.wait(ENDED_WITHIN)
            except subprocess.TimeoutExpired:  # it evaluates something that is not needed any more
                self._child.kill()
            self._end(self._child)
            self._child = None
        if self._log is not None:
            self._log.close()
            self._log = None

    @staticmethod
    def _end(child: "subprocess.Popen[bytes]") -> None:
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


class RankEvaluator:
    """A rank of the run with the role ``evaluator``.

    Attributes:
      rank: its number in the current round; None if there is none, after deaths of ranks.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        """Use the mailbox of the root."""
        self._mailbox = mailbox
        self.rank: int | None = None
        self._reports: list[EvaluationReport] = []

    def start(self, request: EvaluationRequest) -> None:
        """See ``EvaluatorProcess``."""
        if self.rank is None:
            self._reports.append(EvaluationReport(request.number, {}, 0.0, "no rank is left for it"))
        else:
            self._mailbox.post(self.rank, request)

    def receive(self, report: EvaluationReport) -> None:
        """Accept a report from the rank."""
        self._reports.append(report)

    def poll(self) -> EvaluationReport | None:
        """See ``EvaluatorProcess``."""
        return self._reports.pop(0) if self._reports else None

    def give_up(self) -> None:
        """See ``EvaluatorProcess``; a rank in a call that does not return ends with the run."""

    def end_round(self) -> bool:
        """See ``EvaluatorProcess``."""
        if self.rank is not None:
            self._mailbox.post(self.rank, StopEvaluating())
        self.rank = None
        self._reports.clear()
        return True

    def close(self) -> None:
        """See ``EvaluatorProcess``: the rank has ended with its round."""
