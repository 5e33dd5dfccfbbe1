"""A server of trained players in a process of its own, and its output."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path


class Served:
    """``arena serve`` of a run, on a free port.

    Attributes:
      url: address.
      host, port: of it.
      line: line that it printed when its port was open.
      process: the server.
    """

    def __init__(self, run: Path | str, *options: str, flags: tuple[str, ...] = (), within: float = 120) -> None:
        """Start the server, and return once its port is open.

        Args:
          run: the run directory.
          options: of ``arena serve``; open games are ended at its close unless ``--drain`` is among them.
          flags: of Python.
          within: seconds.
        """
        own = ["--port", "0", "--drain", "0"]
        line = [sys.executable, *flags, "-m", "arena.launch", "serve", str(run), *own, *options]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self._errors: list[str] = []
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()
        timer = threading.Timer(within, self.process.kill)
        timer.start()
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline().strip()
        timer.cancel()
        found = re.search(r"(https?)://([^ ]+):(\d+) ", self.line)
        if found is None:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server has not started: {self.line!r} {self.errors()}")
        self.url, self.host, self.port = found[0].strip(), found[2].strip("[]"), int(found[3])

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(self.process.stderr)

    def errors(self) -> str:
        """Return the standard error so far."""
        return "".join(self._errors)

    def failures(self) -> str:
        """Return the lines of standard error that report an error.

        A warning is not among them: that games had to wait is true of a busy machine.
        """
        return "".join(line for line in self._errors if line.startswith(("ERROR", "CRITICAL", "Traceback")))

    def has_said(self, text: str, within: float = 10) -> bool:
        """Return whether a text comes to standard error in time."""
        until = time.monotonic() + within
        while text not in self.errors():
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    def memory(self) -> int:
        """Return the server's resident memory in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def stop(self, number: int = signal.SIGTERM, within: float = 30) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(within)
        self._reader.join(5)
        return code

    def __enter__(self) -> "Served":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the server."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
