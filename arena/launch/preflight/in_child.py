"""Execution of user code in a child process, isolated from the launcher's folder, arguments and output.

A child that raises, ends, crashes or hangs becomes one sentence.
"""

import contextlib
import faulthandler
import os
import pickle
import re
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any, NoReturn, TypeVar

from arena.common.errors import ConfigError
from arena.common.user_code import short_path
from arena.env_manager.faults import fault_of
from arena.system.launcher_env import INSIDE, without_mpi
from arena.system.processes import die_with_parent, kill_group

T = TypeVar("T")

Announce = Callable[[str, float, str], None]
"""Called before each piece of user code: its description, its time limit in seconds, and the key of that limit."""

STACK_WITHIN = 0.5
"""Seconds that a child has to write its stack when it hangs."""


def run_in_child(work: Callable[[Announce], T]) -> T:
    """Return the result of ``work``, called in a fork of this process; the result must be picklable.

    Args:
      work: calls its argument before each piece of user code.

    Raises:
      ConfigError: ``work`` has raised it, or user code raised, exited, crashed or took too long.
    """
    read_end, write_end = os.pipe()
    launcher = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as output, open(read_end, "rb", buffering=0) as results:
        child = os.fork()
        if child == 0:
            _be_child(work, write_end, output, launcher)
        os.close(write_end)
        before = signal.signal(signal.SIGTERM, _end)
        try:
            return _Child(child, results, output).result()
        finally:
            signal.signal(signal.SIGTERM, before)
            kill_group(child)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def _end(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _be_child(work: Callable[[Announce], Any], write_end: int, output: IO[bytes], launcher: int) -> NoReturn:
    """Run the work and send its result; never return."""
    try:
        os.setsid()
        die_with_parent(signal.SIGKILL, launcher)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        sys.stdout, sys.stderr = (open(number, "w", closefd=False, errors="replace") for number in (1, 2))  # noqa: SIM115
        faulthandler.enable(output)
        faulthandler.register(signal.SIGUSR1, output)
        sys.argv = sys.argv[:1]
        for name in os.environ.keys() - without_mpi(os.environ).keys():
            del os.environ[name]  # user code that calls MPI must not take this process for a rank
        os.environ[INSIDE] = "the check of a configuration"
        send = os.fdopen(write_end, "wb").write

        def announce(activity: str, seconds: float, key: str) -> None:
            _send(send, ("begin", activity, seconds, key))

        try:
            reply = ("done", work(announce))
        except ConfigError as error:
            reply = ("refused", str(error))
        except (Exception, SystemExit) as error:
            reply = ("failed", fault_of(error).cause)
        _send(send, reply)
    finally:
        os._exit(0)


def _send(write: Callable[[bytes], Any], message: tuple) -> None:
    data = pickle.dumps(message)
    write(len(data).to_bytes(8, "big") + data)
    getattr(write, "__self__").flush()  # noqa: B009


class _Child:
    """The launcher's view of the child."""

    def __init__(self, process: int, results: IO[bytes], output: IO[bytes]) -> None:
        self._process, self._results, self._output = process, results, output
        self._what, self._key, self._seconds = "the configuration", "", float("inf")

    def result(self) -> Any:
        """Return the result of the work; see ``run_in_child``."""
        deadline = float("inf")
        while (message := self._receive(deadline)) is not None:
            kind, *content = message
            if kind == "begin":
                self._what, self._seconds, self._key = content
                deadline = time.monotonic() + self._seconds
            elif kind == "done":
                return content[0]
            elif kind == "refused":
                raise ConfigError(content[0])
            else:
                raise ConfigError(f"{self._what}: {content[0]}{self._last_words()}")
        status = os.waitid(os.P_PID, self._process, os.WEXITED | os.WNOWAIT)
        assert status is not None
        ended = f"exit code {status.si_status}"
        if status.si_code != os.CLD_EXITED:
            ended = f"signal {status.si_status} ({signal.Signals(status.si_status).name}){self._place()}"
        raise ConfigError(f"{self._what}: ended the process that made it, by {ended}{self._last_words()}")

    def _receive(self, deadline: float) -> tuple | None:
        """Return the next message; None if the child has ended.

        Raises:
          ConfigError: the deadline has passed.
        """
        head = self._read(8, deadline)
        body = self._read(int.from_bytes(head, "big"), deadline) if len(head) == 8 else b""
        return pickle.loads(body) if body else None

    def _read(self, count: int, deadline: float) -> bytes:
        data = b""
        while len(data) < count:
            left = min(deadline - time.monotonic(), 3600.0)
            if left <= 0:
                self._report_hang()
            if select.select([self._results], [], [], max(left, 0))[0]:
                if not (chunk := self._results.read(count - len(data))):
                    return b""
                data += chunk
        return data

    def _report_hang(self) -> NoReturn:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGUSR1)
        time.sleep(STACK_WITHIN)
        raise ConfigError(
            f"{self._what}: took longer than {self._seconds:g} s ({self._key}){self._place()}; "
            f"raise {self._key} if it needs more"
        )

    def _written(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def _place(self) -> str:
        """Return the innermost frame of the stack that faulthandler has written."""
        frame = re.search(r'most recent call first\):\n(?:.*\n)*?  File "([^"<]+)", line (\d+)', self._written())
        return f" at {short_path(frame[1])}, line {frame[2]}" if frame else ""

    def _last_words(self) -> str:
        """Return the last line that the child has printed."""
        lines = [line.strip() for line in self._written().splitlines() if line.strip()]
        if not lines or "most recent call first" in self._written():
            return ""
        return f"; its last output: {lines[-1]:.200}"
