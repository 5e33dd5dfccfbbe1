"""The manager of copies in processes of their own: they step side by side, and none of them can block or harm us."""

import contextlib
import math
import os
import pickle
import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed
from arena.env_manager.child import METHODS
from arena.env_manager.faults import CallError, CopyFault, Fault, RetriesSpentError
from arena.env_manager.fork_client import ForkClient
from arena.env_manager.fork_server import ForkServerPlan, Start
from arena.env_manager.pipe import (
    ASK,
    CLOSE,
    CONFIG,
    FAULT,
    HELLO,
    PLAIN,
    REFUSAL,
    RESET,
    STEP,
    VALUE,
    WITH_INFOS,
    Pipe,
    PipeClosedError,
    pair,
)
from arena.env_manager.serial import Answer, BaseEnvManager, OnFault
from arena.env_manager.settings import ManagerSettings
from arena.env_manager.slot import Slot
from arena.envs.interface import Environment
from arena.system.open_files import make_room
from arena.system.shared_memory import map_memory, new_memory

STARTING, FREE, BUSY, RESTING, SPENT = "start", "free", "busy", "resting", "spent"
"""A copy's process is being made; waits for us; works; will be started at ``deadline``; is given up."""

NEVER = math.inf

MAILBOX_INTERVAL = 0.005
"""Seconds between two looks at the deadlines while answers keep coming."""

FILES_OF_PROCESS, FILES_OF_COPY = 128, 2
"""Open files of a rank with its connections to other ranks, and those of each copy: its pipe and its memory."""

CLOSING_TIME = 2.0
"""Seconds that environments get to close themselves."""

STILL_THERE = ("raised", "contract", "shape", "nan", "mask")
"""Faults after which the process is as good as before."""

NAMES = {STEP: "step", RESET: "reset", ASK: "call"}


def check_open_files(copies: int) -> None:
    """Check that a process may open the files that copies in processes of their own need; raise its limit if it can.

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


class _Copy:
    """What the manager knows of one copy.

    Attributes:
      state: of its process.
      asked: what it is to do for us (also where its process is not there yet), or None.
      deadline: when to do something about it.
      broken: the fault that ended its episode while it was asked for nothing.
      wanted: seed and options of the reset that is asked for.
    """

    def __init__(self, env_id: int) -> None:
        self.env_id = env_id
        self.state = RESTING
        self.asked: bytes | None = None
        self.deadline = NEVER
        self.key = -1
        self.pipe: Pipe | None = None
        self.broken: Fault | None = None
        self.wanted: tuple[int | None, dict | None] = (None, None)


class SubprocessEnvManager(BaseEnvManager):
    """Each copy has a process of its own, forked by a fork server that knows nothing of MPI.

    Actions, observations and rewards lie in shared memory. A copy that raises, exits, is killed, hangs past a timeout,
    returns something wrong or holds too much memory is replaced; nothing waits for it longer than its timeouts say.
    When this process ends, however that happens, so do they.
    """

    def __init__(
        self,
        make: Callable[[int], Environment],
        env_num: int,
        settings: ManagerSettings | None = None,
        on_fault: OnFault | None = None,
    ) -> None:
        """Start the processes, and wait until all copies are made.

        Args:
          make: makes the copy with the given index; it travels by cloudpickle. Names of modules to import before any
            copy is forked may stand in its attribute ``modules``.
          env_num: how many.
          settings: timeouts and limits; the defaults where None.
          on_fault: called with the index of a copy and its fault; a RetriesSpentError that it raises gives the copy up.

        Raises:
          ConfigError: there are to be none, the copies differ in their entities, or one cannot be made as configured.
          RetriesSpentError: a copy cannot be made for another reason.
        """
        self._copies = [_Copy(i) for i in range(env_num)]
        self._by_descriptor: dict[int, _Copy] = {}
        self._poller = select.poll()
        self._keys = 0
        self._next_look = 0.0
        self._fork_server: ForkClient | None = None
        super().__init__(make, env_num, settings, on_fault)

    def _start(self) -> None:
        self._slots: list[Slot] = [None] * self.env_num  # type: ignore[list-item]  # made when the entities are known
        check_open_files(self.env_num)
        make = self._makes[0]
        self._plans = ForkServerPlan(
            cloudpickle.dumps(make), self.settings.memory_limit, tuple(getattr(make, "modules", ()))
        )
        self._own_makes: list[bytes | None] = [None] * self.env_num
        for copy in self._copies:
            self._launch(copy)
        while any(copy.state not in (FREE, SPENT) for copy in self._copies):
            self.poll(0.5)
        for outcome in self._outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    # What the engine and the public methods call ------------------------------------------------------------------

    def begin_reset(self, env_id: int, seed: int | None = None, options: dict | None = None) -> None:
        """Have a copy reset; ``result`` gives its timestep."""
        copy = self._copies[env_id]
        if seed is not None:
            self._base[env_id] = seed
        copy.asked, copy.wanted, copy.broken = RESET, (seed, options), None
        if copy.state == FREE:
            self._send_reset(copy)
        elif copy.state == SPENT:
            self._launch(copy)

    def begin_step(self, env_id: int, actions: Sequence[Any] | None = None) -> None:
        """Have a copy step; ``result`` gives its timestep. None takes the actions that its slot holds."""
        if actions is not None:
            self._slots[env_id].put_actions(actions)
        copy = self._copies[env_id]
        if copy.broken is not None:
            self._outcomes[env_id] = CopyFault(copy.broken)
            self._over[env_id] = True
            copy.broken = None
        else:
            self._send(copy, STEP, b"", self.settings.step_timeout)

    def pending(self, env_id: int) -> bool:
        """Whether a copy has not answered yet."""
        return self._copies[env_id].asked is not None

    def poll(self, timeout: float = 0.0) -> None:
        """Take the answers that have come; wait up to ``timeout`` seconds for one where there is none yet."""
        events = self._poller.poll(0)
        if not events and timeout > 0:
            nearest = min(copy.deadline for copy in self._copies)
            left = min(timeout, max(nearest - time.monotonic(), 0.0))
            events = self._poller.poll(math.ceil(1000 * left))
        for descriptor, _ in events:
            copy = self._by_descriptor.get(descriptor)
            if copy is not None:
                self._receive_answers(copy)
        now = time.monotonic()
        if not events or now >= self._next_look:
            self._next_look = now + MAILBOX_INTERVAL
            for copy in self._copies:
                if now >= copy.deadline:
                    self._on_timeout(copy)

    def recover(self, env_id: int, fault: Fault) -> None:
        """Replace a copy whose timestep turned out to be of no use; it must be reset."""
        self._fail(self._copies[env_id], fault)

    def restart(self, env_id: int, make: Callable[[int], Environment] | None = None) -> None:
        """Replace a copy without its fault, by one that ``make`` makes from now on; it must be reset."""
        if make is not None:
            self._own_makes[env_id] = cloudpickle.dumps(make)
        copy = self._copies[env_id]
        self._end(copy)
        copy.asked = copy.broken = self._outcomes[env_id] = None
        self._over[env_id] = True
        self._launch(copy)

    def close(self) -> None:
        """Close all copies and end their processes, at once where they take too long; once.

        Raises:
          CallError: an environment could not close itself.
        """
        if self._closed:
            return
        self._closed = True
        failures: list[str] = []
        for copy in self._copies:
            if copy.state == FREE and copy.pipe is not None:
                with contextlib.suppress(PipeClosedError):
                    copy.pipe.send(CLOSE)
        until = time.monotonic() + CLOSING_TIME
        for copy in self._copies:
            while copy.state == FREE and copy.pipe is not None:
                left = until - time.monotonic()
                if left <= 0 or not select.select((copy.pipe,), (), (), left)[0]:
                    break
                with contextlib.suppress(PipeClosedError):
                    if (message := copy.pipe.poll()) is not None and message.kind == FAULT:
                        failures.append(pickle.loads(message.data)[1])
                    continue
                break
            self._disconnect(copy)
        if self._fork_server is not None:
            self._fork_server.close()
        if failures:
            raise CallError(f"an environment could not close itself:\n{failures[0]}")

    def _asked(self, ids: list[int], what: str, name: str, args: tuple, kwargs: Mapping[str, Any]) -> dict[int, Any]:
        data = cloudpickle.dumps((what, name, args, dict(kwargs)))
        while any(self._copies[i].state not in (FREE, SPENT) for i in ids):
            self.poll(0.5)
        for i in ids:
            self._send(self._copies[i], ASK, data, self.settings.step_timeout)
        self._await(ids)
        found, failure = {}, None
        for i in ids:
            outcome, self._outcomes[i] = self._outcomes[i], None
            if isinstance(outcome, Exception):
                failure = failure or outcome
            elif isinstance(outcome, Answer):
                found[i] = outcome.value
        if failure is not None:
            raise failure
        return found

    # Orders -------------------------------------------------------------------------------------------------------

    def _send(self, copy: _Copy, kind: bytes, data: bytes, timeout: float) -> None:
        copy.asked = kind
        if copy.pipe is None:
            self._fail(copy, Fault("killed", "its process is gone"))
            return
        try:
            copy.pipe.send(kind, data)
        except PipeClosedError:
            self._on_exit(copy)
            return
        copy.state = BUSY
        copy.deadline = time.monotonic() + timeout

    def _send_reset(self, copy: _Copy) -> None:
        self._send(copy, RESET, pickle.dumps(copy.wanted), self.settings.reset_timeout)

    def _launch(self, copy: _Copy) -> None:
        """Order a process for a copy."""
        self._keys += 1
        copy.key = self._keys
        seed = self.settings.seed
        if seed is not None:
            seed = derive_seed(seed, "process", copy.env_id, self._ever[copy.env_id])
        if self._fork_server is None or not self._fork_server.alive:
            if self._fork_server is not None:
                self._fork_server.close()
            self._fork_server = ForkClient(self._plans)
        ours, theirs = pair()
        with theirs:
            try:
                self._fork_server.start(
                    Start(copy.key, copy.env_id, seed, self._own_makes[copy.env_id]), theirs.fileno()
                )
            except OSError:  # it has hundreds of orders already, or has just died
                ours.close()
                copy.state, copy.deadline = RESTING, time.monotonic() + 0.02
                return
        copy.pipe = Pipe(ours)
        self._by_descriptor[ours.fileno()] = copy
        self._poller.register(ours, select.POLLIN)
        copy.state, copy.deadline = STARTING, time.monotonic() + self.settings.start_timeout

    def _disconnect(self, copy: _Copy) -> None:
        if copy.pipe is not None:
            self._poller.unregister(copy.pipe.socket)
            del self._by_descriptor[copy.pipe.fileno()]
            copy.pipe.close()
            copy.pipe = None

    # Answers ------------------------------------------------------------------------------------------------------

    def _receive_answers(self, copy: _Copy) -> None:
        assert copy.pipe is not None
        try:
            message = copy.pipe.poll()
        except PipeClosedError:
            self._on_exit(copy)
            return
        if message is None:
            return
        kind, data = message
        if kind in (PLAIN, WITH_INFOS):
            infos = pickle.loads(data) if kind == WITH_INFOS else None
            self._release(copy)
            self._settle(copy.env_id, self._slots[copy.env_id].timestep(infos))
        elif kind == HELLO:
            self._on_ready(copy, *pickle.loads(data))
        elif kind == VALUE:
            self._release(copy)
            self._outcomes[copy.env_id] = Answer(pickle.loads(data))
        elif kind == REFUSAL:
            self._release(copy)
            unknown, text = pickle.loads(data)
            self._outcomes[copy.env_id] = AttributeError(text) if unknown else CallError(text)
        elif kind == FAULT:
            self._fail(copy, Fault(*pickle.loads(data)))
        elif kind == CONFIG:
            raise ConfigError(data.decode())

    def _release(self, copy: _Copy) -> None:
        copy.state, copy.asked, copy.deadline = FREE, None, NEVER

    def _on_ready(self, copy: _Copy, entities: tuple, turn_based: bool) -> None:
        """Give a copy that has been made the memory to share, and what was asked of it meanwhile."""
        self._check_entities(copy.env_id, entities, turn_based)
        assert copy.pipe is not None
        size = Slot(self.entities).size
        descriptor = new_memory(size)
        try:
            # New memory for each process: an old one that is dying may still write into its own.
            self._slots[copy.env_id] = Slot(self.entities, map_memory(descriptor, size))
            copy.pipe.send_descriptor(descriptor)
        except PipeClosedError:
            self._on_exit(copy)
            return
        finally:
            os.close(descriptor)
        copy.state, copy.deadline = FREE, NEVER
        if copy.asked == RESET:
            self._send_reset(copy)

    # Faults -------------------------------------------------------------------------------------------------------

    def _on_exit(self, copy: _Copy) -> None:
        """See to a process whose pipe has ended."""
        assert self._fork_server is not None
        ended = self._fork_server.end_of(copy.key)
        text = "its process is gone" if ended is None else ended.text
        method = "constructor" if copy.state == STARTING else METHODS.get(copy.asked or b"", "")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        fault = Fault("killed" if ended is None else ended.what, text, method, lines[-1] if lines else "", "ended")
        self._disconnect(copy)
        self._fail(copy, fault)

    def _on_timeout(self, copy: _Copy) -> None:
        """Do what is due at a copy's deadline."""
        if copy.state == RESTING:
            self._launch(copy)
            return
        settings = self.settings
        if copy.state == STARTING:
            what, allowed = "start", settings.start_timeout
        else:
            assert copy.asked is not None
            what = NAMES[copy.asked]
            allowed = settings.reset_timeout if copy.asked == RESET else settings.step_timeout
        where = self._end(copy)
        cause = f"took longer than {allowed:g} s ({what}_timeout)"
        method = "constructor" if what == "start" else what
        self._fail(copy, Fault("hung", f"{where}\nits {what} {cause}".lstrip(), method, cause, "hung"))

    def _end(self, copy: _Copy) -> str:
        """End a copy's process; return where it was, as far as it can be told."""
        if copy.pipe is None or self._fork_server is None:
            return ""
        self._disconnect(copy)
        ended = self._fork_server.kill(copy.key)
        return "" if ended is None else ended.text

    def _fail(self, copy: _Copy, fault: Fault) -> None:
        """Say what a fault means for what was asked, and see to the replacement."""
        i, asked = copy.env_id, copy.asked
        episode = not self._over[i]
        try:
            pause = self._count_fault(i, fault)
        except RetriesSpentError as spent:
            self._end(copy)
            copy.state, copy.asked, copy.deadline = SPENT, None, NEVER
            self._over[i] = True
            self._outcomes[i] = spent
            return
        if asked == STEP:
            self._outcomes[i] = CopyFault(fault)
        elif asked == ASK:
            self._outcomes[i] = CallError(f"environment copy {i} is being replaced: {fault.text}")
        if asked == RESET:
            copy.wanted = self.next_seed(i), copy.wanted[1]
        else:
            copy.asked = None
            # An episode that broke off while nobody asked is told of with its next step.
            copy.broken = fault if episode and asked != STEP else None
            self._over[i] = copy.broken is None
        if self.settings.retry == "reset" and fault.what in STILL_THERE and copy.pipe is not None:
            copy.state, copy.deadline = FREE, NEVER
            if asked == RESET:
                self._send_reset(copy)
            return
        self._end(copy)
        if pause:
            copy.state, copy.deadline = RESTING, time.monotonic() + pause
        else:
            self._launch(copy)
