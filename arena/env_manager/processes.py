"""Processes of a manager's copies: their start by the fork server, their connections, and their ends."""

import math
import select
import time

from arena.common.errors import ConfigError
from arena.env_manager.faults import Fault
from arena.env_manager.fork_client import ForkClient
from arena.env_manager.fork_server import Ended, ForkServerPlan, Start
from arena.env_manager.pipe import Pipe, pair
from arena.system.open_files import make_room

STARTING, FREE, BUSY, RESTING, SPENT = "start", "free", "busy", "resting", "spent"
"""State of a copy: its process starts; idle; stepping; to be started at ``deadline``; given up."""

NEVER = math.inf

FILES_OF_PROCESS, FILES_OF_COPY = 128, 2
"""Open files of a rank with its connections to other ranks, and those of each copy: its pipe and its memory."""

RETRY_AFTER = 0.02
"""Seconds until a start is requested again, where the fork server's queue is full or it has just died."""


def check_open_files(copies: int) -> None:
    """Check that this process may open the files that ``copies`` subprocesses need; raise its limit if possible.

    Raises:
      ConfigError: the system does not allow so many.
    """
    needed = FILES_OF_PROCESS + FILES_OF_COPY * copies
    hard = make_room(needed)
    if hard is not None:
        raise ConfigError(
            f"{copies} copies with manager: subprocess need {needed} open files, and this system allows {hard} "
            f"(ulimit -Hn); expected at most {max(0, (hard - FILES_OF_PROCESS) // FILES_OF_COPY)} copies; raise the "
            "limit, or lower num_envs"
        )


class Copy:
    """The manager's state of one copy.

    Attributes:
      env_id: its index.
      state: state of its process.
      request: the pending request (possibly before the process exists), or None.
      deadline: time of the next timeout or restart.
      key: number of its process.
      pipe: connection to its process; None without one.
      broken: the fault that ended its episode while no request was pending.
      reset_arguments: seed and options of the pending reset.
    """

    def __init__(self, env_id: int) -> None:
        self.env_id = env_id
        self.state = RESTING
        self.request: bytes | None = None
        self.deadline = NEVER
        self.key = -1
        self.pipe: Pipe | None = None
        self.broken: Fault | None = None
        self.reset_arguments: tuple[int | None, dict | None] = (None, None)


class CopyProcesses:
    """One process for each copy, forked by a fork server without MPI, which is started again where it has died."""

    def __init__(self, plan: ForkServerPlan, start_timeout: float) -> None:
        """Start nothing yet.

        Args:
          plan: what the fork server needs to construct copies.
          start_timeout: seconds in which a copy must be constructed.
        """
        self._plan, self._start_timeout = plan, start_timeout
        self._by_descriptor: dict[int, Copy] = {}
        self._poller = select.poll()
        self._keys = 0
        self._fork_server: ForkClient | None = None

    def launch(self, copy: Copy, seed: int | None, make: bytes | None) -> None:
        """Request a process for a copy.

        Args:
          copy: a copy without a process.
          seed: seed of its global generators; None for a random one.
          make: constructor of this copy alone, pickled; None for that of all copies.
        """
        self._keys += 1
        copy.key = self._keys
        if self._fork_server is None or not self._fork_server.alive:
            if self._fork_server is not None:
                self._fork_server.close()
            self._fork_server = ForkClient(self._plan)
        ours, theirs = pair()
        with theirs:
            try:
                self._fork_server.start(Start(copy.key, copy.env_id, seed, make), theirs.fileno())
            except OSError:  # its queue is full, or it has just died
                ours.close()
                copy.state, copy.deadline = RESTING, time.monotonic() + RETRY_AFTER
                return
        copy.pipe = Pipe(ours)
        self._by_descriptor[ours.fileno()] = copy
        self._poller.register(ours, select.POLLIN)
        copy.state, copy.deadline = STARTING, time.monotonic() + self._start_timeout

    def poll(self, milliseconds: int) -> list[Copy]:
        """Return the copies with a process that has sent something or ended; wait up to this time for the first one."""
        events = self._poller.poll(milliseconds)
        return [self._by_descriptor[descriptor] for descriptor, _ in events if descriptor in self._by_descriptor]

    def end_of(self, copy: Copy) -> Ended | None:
        """Return how the process of a copy has ended, as far as it is known."""
        assert self._fork_server is not None
        return self._fork_server.end_of(copy.key)

    def disconnect(self, copy: Copy) -> None:
        """Close the connection to a copy's process."""
        if copy.pipe is not None:
            self._poller.unregister(copy.pipe.socket)
            del self._by_descriptor[copy.pipe.fileno()]
            copy.pipe.close()
            copy.pipe = None

    def end(self, copy: Copy) -> str:
        """End a copy's process; return its last stack, as far as it is known."""
        if copy.pipe is None or self._fork_server is None:
            return ""
        self.disconnect(copy)
        ended = self._fork_server.kill(copy.key)
        return "" if ended is None else ended.text

    def close(self) -> None:
        """End the fork server, and all processes with it."""
        if self._fork_server is not None:
            self._fork_server.close()
