"""File of bounded size with the output of a process: both streams, of Python and C code and of child processes.

A file takes any amount of text. A pipe would block the process as soon as its reader is late, which is how
simulators that print hang.
"""

import contextlib
import faulthandler
import fcntl
import io
import os
import re
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

LIMIT = 10_000_000
"""Largest size of a file in bytes; beyond it, the older half is removed."""

POLL_INTERVAL = 0.5
"""Longest time between two looks at the file, in seconds."""

FLOOD, FLUSH_INTERVAL = 200_000, 0.05
"""Bytes per second beyond which lines of Python code are held, for at most these seconds: a system call for each would
slow the process down. What is held is lost if the process is killed, so all other lines are written immediately. Held
lines of the two streams may change places."""

FIRST_LINES = 10
"""Different lines of a process that are shown."""

LONGEST_LINE = 300
"""Characters of a line that are shown."""

REST = ""
"""What stands for all lines that are not shown."""

ATTEMPT = "[a new attempt begins]"
"""Line between the output of two processes, one after the other."""

CRASH = "Fatal Python error"
"""Beginning of what the interpreter writes about a fatal signal."""

OF_MPI = re.compile(r"\[\S+:\d+\] ")
"""Beginning of Open MPI's own lines about it."""

_errors: list[IO[str]] = []


def terminal_errors() -> IO[str]:
    """Return the standard error that this process was started with, for the arena's own messages."""
    return _errors[-1] if _errors else sys.stderr


class OutputFile:
    """Redirects descriptors 1 and 2, and Python's streams over them, to a file.

    Attributes:
      path: the file.
    """

    def __init__(self, path: Path, *, first_lines: int = 0, forward: str | None = None, shared: bool = False) -> None:
        """Redirect everything that is printed from now on.

        Args:
          path: the file, which is appended to.
          first_lines: number of different lines that ``new_lines`` returns.
          forward: prefix with which every line is also written to the original standard output; None for nowhere.
          shared: whether other processes write to the file, too.
        """
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        if not shared and os.fstat(self._file).st_size:  # of an earlier attempt
            os.write(self._file, f"{ATTEMPT}\n".encode())
        self._read = os.fstat(self._file).st_size
        self._shared, self._forward = shared, forward
        self._pick = FirstLines(first_lines)
        self._wanted = bool(first_lines) or forward is not None
        self._lines: deque[str] = deque()
        self._updating, self._over = threading.Lock(), threading.Event()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        self._before = os.dup(1), os.dup(2)
        for kept in self._before:
            os.set_inheritable(kept, False)
        _errors.append(open(self._before[1], "w", closefd=False, errors="replace", buffering=1))  # noqa: SIM115
        for number in (1, 2):
            os.dup2(self._file, number)
        if not faulthandler.is_enabled():
            faulthandler.enable(2, all_threads=False)
        self._writing = threading.RLock()  # reentrant: a signal may print meanwhile
        self._streams = sys.stdout, sys.stderr
        self._ours = tuple(
            io.TextIOWrapper(_Descriptor(self._writing), "utf-8", "backslashreplace", line_buffering=True)
            for _ in self._streams
        )
        self._holds = False
        sys.stdout, sys.stderr = self._ours
        os.register_at_fork(
            before=self._before_fork, after_in_parent=self._writing.release, after_in_child=self._in_child
        )
        threading.Thread(target=self._serve, name="output", daemon=True).start()

    def new_lines(self) -> list[str]:
        """Return the first lines that have arrived since the last call, without waiting.

        An empty one stands for lines that are only in the file.
        """
        return [self._lines.popleft() for _ in range(len(self._lines))]

    def close(self) -> list[str]:
        """Restore the streams and return the last of the first lines; a file without a byte is removed."""
        self._over.set()
        self.update()
        self._hold(False)  # whoever has kept a stream may go on to write to it
        sys.stdout, sys.stderr = self._streams
        _errors.pop().flush()
        for number, before in zip((1, 2), self._before, strict=True):
            os.dup2(before, number)
            os.close(before)
        if not self._shared and os.fstat(self._file).st_size == 0:
            with contextlib.suppress(OSError):
                self.path.unlink()
        return self.new_lines()

    def _flush(self) -> None:
        for stream in self._ours:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()

    def _before_fork(self) -> None:
        self._writing.acquire()  # else the child could get it in the hands of a thread that it does not have
        self._flush()  # else both processes would write what is held

    def _in_child(self) -> None:
        self._writing.release()
        self._hold(False)  # no thread writes what is held

    def _hold(self, holds: bool) -> None:
        """Hold lines until the next flush, or write each immediately."""
        if holds != self._holds:
            self._holds = holds
            for stream in self._ours:
                with contextlib.suppress(ValueError):  # user code has closed it
                    stream.reconfigure(line_buffering=not holds)

    def _serve(self) -> None:
        last, interval, size = time.monotonic(), FLUSH_INTERVAL, self._read
        while not self._over.wait(FLUSH_INTERVAL if self._holds else interval):
            self._flush()
            seconds = time.monotonic() - last
            if seconds < interval:
                continue
            with contextlib.suppress(OSError, ValueError):
                before, size = size, os.fstat(self._file).st_size
                self._hold(not 0 <= size - before < FLOOD * seconds)  # smaller: its older half was removed
                self.update()
                size = os.fstat(self._file).st_size
            last += seconds
            interval = min(1.5 * interval, POLL_INTERVAL)  # the first lines are shown soon

    def update(self) -> None:
        """Write what is held, and pick the first lines."""
        with self._updating:
            self._flush()
            size = os.fstat(self._file).st_size
            if self._wanted and size > self._read:
                for text in self._new_texts(size):
                    self._pick.add(text)
                    if self._forward is not None:
                        with contextlib.suppress(OSError):
                            os.write(self._before[0], f"{self._forward} {text}\n".encode(errors="replace"))
                self._lines.extend(self._pick.take())
                self._wanted = self._forward is not None or not self._pick.is_full
            if size > LIMIT:
                with self._writing:
                    self._shorten()

    def _new_texts(self, size: int) -> Iterator[str]:
        """Yield the whole lines that have arrived; of a flood, those that are needed."""
        most = size - self._read if self._forward is not None else 1 << 18
        data = os.pread(self._file, most, self._read)
        whole = data.rfind(b"\n") + 1 or (len(data) if len(data) == most else 0)
        self._read += whole
        for line in data[:whole].decode(errors="replace").splitlines():
            if text := line.rstrip():
                yield text

    def _shorten(self) -> None:
        """Remove the older half of the file.

        What C code and child processes write in these milliseconds may be lost.
        """
        size = os.fstat(self._file).st_size
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another process is doing it, or the file system has no locks
            return
        try:
            kept = os.pread(self._file, LIMIT // 2, size - LIMIT // 2).partition(b"\n")[2]
            os.ftruncate(self._file, 0)
            left_out = size - len(kept)
            os.write(self._file, b"[%s bytes before this line were removed]\n" % f"{left_out:,}".encode() + kept)
            self._read = os.fstat(self._file).st_size
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


class _Descriptor(io.BufferedIOBase):
    """Standard output, to which a write never fails, so that a print on a full disk ends no environment.

    What is held lies in the text streams over it. An ``io.BufferedWriter`` has a lock, which another thread may have
    when a process forks: the child would hang in its first print.
    """

    name = "<stdout>"

    def __init__(self, writing: threading.RLock) -> None:
        """Hold ``writing`` in every write, so that none falls into the removal of the older half."""
        self._writing = writing

    def write(self, data: Any) -> int:
        """Write all, or drop what cannot be written."""
        octets, done = memoryview(data).cast("B"), 0
        with self._writing, contextlib.suppress(OSError):
            while done < len(octets):
                done += os.write(1, octets[done:])
        return len(octets)

    def fileno(self) -> int:
        """Return the descriptor."""
        return 1

    def writable(self) -> bool:
        """Return True."""
        return True


class FirstLines:
    """The first different lines of a process, equal ones counted, and a mark that there are more."""

    def __init__(self, most: int) -> None:
        """Take up to ``most`` different lines."""
        self._most = most
        self._seen: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._has_more = self._marked = False

    @property
    def is_full(self) -> bool:
        """Whether no line will follow."""
        return len(self._seen) >= self._most and (self._marked or not self._most)

    def add(self, text: str) -> None:
        """Count a line."""
        if text in self._counts or (text not in self._seen and len(self._seen) < self._most):
            self._seen.add(text)
            self._counts[text] += 1
        else:
            self._has_more = True

    def take(self) -> list[str]:
        """Return the lines since the last call; ``REST`` is among them, once, if there are others."""
        lines = []
        for text, count in self._counts.items():
            shown = text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}..."
            lines.append(f"{shown}  [repeated {count:,} times]" if count > 1 else shown)
        self._counts.clear()
        if self._has_more and not self._marked:
            lines.append(REST)
            self._marked = True
        return lines


def last_lines(path: Path, most: int = 5) -> list[str]:
    """Return the last lines that a process has printed before it crashed, and where; none if they cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 65536))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    begins = max((i + 1 for i, line in enumerate(lines) if line == ATTEMPT), default=0)
    lines = [line for line in lines[begins:] if line.strip() and not OF_MPI.match(line)]
    crash = next((i for i, line in enumerate(lines) if line.startswith(CRASH)), len(lines))
    frames = [line for line in lines[crash:] if line.startswith("  File ")]
    return [*lines[max(0, crash - most) : crash], *lines[crash : crash + 1], *frames[:2]]
