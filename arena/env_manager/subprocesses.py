"""The manager of copies in subprocesses: they step in parallel, and none of them can block or harm this process."""

import contextlib
import math
import os
import pickle
import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed
from arena.env_manager.child import METHODS, WITH_STATE
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
from arena.env_manager.serial import BaseEnvManager, CallResult, OnFault
from arena.env_manager.settings import ManagerSettings
from arena.env_manager.slot import Slot
from arena.envs.interface import Environment, with_global_state
from arena.system.open_files import make_room
from arena.system.shared_memory import map_memory, new_memory

STARTING, FREE, BUSY, RESTING, SPENT = "start", "free", "busy", "resting", "spent"
"""State of a copy: its process starts; idle; stepping; to be started at ``deadline``; given up."""

NEVER = math.inf

MAILBOX_INTERVAL = 0.005
"""Seconds between two checks of the deadlines while replies keep arriving."""

FILES_OF_PROCESS, FILES_OF_COPY = 128, 2
"""Open files of a rank with its connections to other ranks, and those of each copy: its pipe and its memory."""

CLOSING_TIME = 2.0
"""Seconds that environments get to close themselves."""

STILL_THERE = ("raised", "contract", "shape", "nan", "mask")
"""Faults that do not require a new process."""

NAMES = {STEP: "step", RESET: "reset", ASK: "call"}


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


class _Copy:
    """The manager's state of one copy.

    Attributes:
      state: of its process.
      request: the pending request (possibly before the process exists), or None.
      deadline: time of the next timeout or restart.
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


class SubprocessEnvManager(BaseEnvManager):
    """A manager that runs each copy in a process of its own, forked by a fork server without MPI.

    Actions, observations and rewards lie in shared memory. A copy that raises, exits, is killed, exceeds a timeout or
    the memory limit, or returns an invalid value is replaced; no call waits for it longer than its timeouts. All
    processes end with this one, however it ends.
    """

    def __init__(
        self,
        make: Callable[[int], Environment],
        env_num: int,
        settings: ManagerSettings | None = None,
        on_fault: OnFault | None = None,
    ) -> None:
        """Start the processes, and wait until all copies are constructed.

        Args:
          make: returns the copy with the given index; it is sent by cloudpickle. Its attribute ``modules`` may name
            modules to import before any process is forked.
          env_num: number of copies.
          settings: timeouts and limits; None for the defaults.
          on_fault: called with the index of a copy and its fault; gives the copy up by raising a RetriesSpentError.

        Raises:
          ConfigError: ``env_num`` is not positive, the copies differ in their entities, or their configuration is
            invalid.
          RetriesSpentError: a copy cannot be constructed for another reason.
        """
        self._copies = [_Copy(i) for i in range(env_num)]
        self._by_descriptor: dict[int, _Copy] = {}
        self._poller = select.poll()
        self._keys = 0
        self._next_look = 0.0
        self._fork_server: ForkClient | None = None
        super().__init__(make, env_num, settings, on_fault)

    def _start(self) -> None:
        self._slots: list[Slot] = [None] * self.env_num  # type: ignore[list-item]  # filled when the entities are known
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

    # Methods for the engine and the public methods ----------------------------------------------------------------

    def begin_reset(self, env_id: int, seed: int | None = None, options: dict | None = None) -> None:
        """Begin the reset of a copy; ``result`` returns its timestep."""
        copy = self._copies[env_id]
        if seed is not None:
            self._base[env_id] = seed
        copy.request, copy.reset_arguments, copy.broken = RESET, (seed, options), None
        if copy.state == FREE:
            self._send_reset(copy)
        elif copy.state == SPENT:
            self._launch(copy)

    def begin_step(self, env_id: int, actions: Sequence[Any] | None = None) -> None:
        """Begin the step of a copy; ``result`` returns its timestep. None takes the actions in its slot."""
        if actions is not None:
            self._slots[env_id].put_actions(actions)
        copy = self._copies[env_id]
        if copy.broken is not None:
            self._outcomes[env_id] = CopyFault(copy.broken)
            self._over[env_id] = True
            copy.broken = None
        else:
            self._send(copy, STEP, WITH_STATE if self.reads_state else b"", self.settings.step_timeout)

    def state(self, env_id: int) -> Any:
        """Return the environment's own global state after the latest step or reset of a copy, valid until the next."""
        return self._slots[env_id].global_state

    def pending(self, env_id: int) -> bool:
        """Return whether a copy has a pending step or reset."""
        return self._copies[env_id].request is not None

    def poll(self, timeout: float = 0.0) -> None:
        """Receive finished steps and resets; wait up to ``timeout`` seconds if there are none."""
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
        """Replace a copy that returned an invalid timestep; it must be reset."""
        self._fail(self._copies[env_id], fault)

    def restart(self, env_id: int, make: Callable[[int], Environment] | None = None) -> None:
        """Replace a copy that has not failed by one that ``make`` returns, now and later; it must be reset."""
        if make is not None:
            self._own_makes[env_id] = cloudpickle.dumps(make)
        copy = self._copies[env_id]
        self._end(copy)
        copy.request = copy.broken = self._outcomes[env_id] = None
        self._over[env_id] = True
        self._launch(copy)

    def close(self) -> None:
        """Close all copies, kill processes that do not close in time. Later calls do nothing.

        Raises:
          CallError: an environment failed to close.
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

    def _call_copies(
        self, ids: list[int], kind: str, name: str, args: tuple, kwargs: Mapping[str, Any]
    ) -> dict[int, Any]:
        data = cloudpickle.dumps((kind, name, args, dict(kwargs)))
        while any(self._copies[i].state not in (FREE, SPENT) for i in ids):
            self.poll(0.5)
        for i in ids:
            self._send(self._copies[i], ASK, data, self.settings.step_timeout)
        self._await(ids)
        values, failure = {}, None
        for i in ids:
            outcome, self._outcomes[i] = self._outcomes[i], None
            if isinstance(outcome, Exception):
                failure = failure or outcome
            elif isinstance(outcome, CallResult):
                values[i] = outcome.value
        if failure is not None:
            raise failure
        return values

    # Orders -------------------------------------------------------------------------------------------------------

    def _send(self, copy: _Copy, kind: bytes, data: bytes, timeout: float) -> None:
        copy.request = kind
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
        self._send(copy, RESET, pickle.dumps((*copy.reset_arguments, self.reads_state)), self.settings.reset_timeout)

    def _launch(self, copy: _Copy) -> None:
        """Request a process for a copy."""
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
            except OSError:  # its queue is full, or it has just died
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
            self._accept(copy.env_id, self._slots[copy.env_id].timestep(infos))
        elif kind == HELLO:
            self._on_ready(copy, *pickle.loads(data))
        elif kind == VALUE:
            self._release(copy)
            self._outcomes[copy.env_id] = CallResult(pickle.loads(data))
        elif kind == REFUSAL:
            self._release(copy)
            unknown, text = pickle.loads(data)
            self._outcomes[copy.env_id] = AttributeError(text) if unknown else CallError(text)
        elif kind == FAULT:
            self._fail(copy, Fault(*pickle.loads(data)))
        elif kind == CONFIG:
            raise ConfigError(data.decode())

    def _release(self, copy: _Copy) -> None:
        copy.state, copy.request, copy.deadline = FREE, None, NEVER

    def _on_ready(self, copy: _Copy, entities: tuple, turn_based: bool, state_space: spaces.Space | None) -> None:
        """Give a constructed copy its shared memory, and send it the request that waits."""
        self._check_entities(copy.env_id, entities, turn_based, state_space)
        assert copy.pipe is not None
        entities = with_global_state(self.entities, self.state_space)
        size = Slot(entities).size
        descriptor = new_memory(size)
        try:
            # Allocate new memory for each process: an old process that is ending may still write to its own.
            self._slots[copy.env_id] = Slot(entities, map_memory(descriptor, size))
            copy.pipe.send_descriptor(descriptor)
        except PipeClosedError:
            self._on_exit(copy)
            return
        finally:
            os.close(descriptor)
        copy.state, copy.deadline = FREE, NEVER
        if copy.request == RESET:
            self._send_reset(copy)

    # Faults -------------------------------------------------------------------------------------------------------

    def _on_exit(self, copy: _Copy) -> None:
        """Handle the end of a copy's process."""
        assert self._fork_server is not None
        ended = self._fork_server.end_of(copy.key)
        text = "its process is gone" if ended is None else ended.text
        method = "constructor" if copy.state == STARTING else METHODS.get(copy.request or b"", "")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        fault = Fault("killed" if ended is None else ended.what, text, method, lines[-1] if lines else "", "ended")
        self._disconnect(copy)
        self._fail(copy, fault)

    def _on_timeout(self, copy: _Copy) -> None:
        """Handle the deadline of a copy."""
        if copy.state == RESTING:
            self._launch(copy)
            return
        settings = self.settings
        if copy.state == STARTING:
            phase, allowed = "start", settings.start_timeout
        else:
            assert copy.request is not None
            phase = NAMES[copy.request]
            allowed = settings.reset_timeout if copy.request == RESET else settings.step_timeout
        where = self._end(copy)
        cause = f"took longer than {allowed:g} s ({phase}_timeout)"
        method = "constructor" if phase == "start" else phase
        self._fail(copy, Fault("hung", f"{where}\nits {phase} {cause}".lstrip(), method, cause, "hung"))

    def _end(self, copy: _Copy) -> str:
        """End a copy's process; return its last stack, as far as it is known."""
        if copy.pipe is None or self._fork_server is None:
            return ""
        self._disconnect(copy)
        ended = self._fork_server.kill(copy.key)
        return "" if ended is None else ended.text

    def _fail(self, copy: _Copy, fault: Fault) -> None:
        """Resolve the pending request with a fault, and arrange the replacement."""
        i, request = copy.env_id, copy.request
        episode = not self._over[i]
        try:
            pause = self._count_fault(i, fault)
        except RetriesSpentError as spent:
            self._end(copy)
            copy.state, copy.request, copy.deadline = SPENT, None, NEVER
            self._over[i] = True
            self._outcomes[i] = spent
            return
        if request == STEP:
            self._outcomes[i] = CopyFault(fault)
        elif request == ASK:
            self._outcomes[i] = CallError(f"environment copy {i} is being replaced: {fault.text}")
        if request == RESET:
            copy.reset_arguments = self.next_seed(i), copy.reset_arguments[1]
        else:
            copy.request = None
            # A fault that happened while no request was pending is reported by the next step.
            copy.broken = fault if episode and request != STEP else None
            self._over[i] = copy.broken is None
        if self.settings.retry == "reset" and fault.what in STILL_THERE and copy.pipe is not None:
            copy.state, copy.deadline = FREE, NEVER
            if request == RESET:
                self._send_reset(copy)
            return
        self._end(copy)
        if pause:
            copy.state, copy.deadline = RESTING, time.monotonic() + pause
        else:
            self._launch(copy)
