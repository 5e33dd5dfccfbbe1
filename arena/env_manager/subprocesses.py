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
from arena.env_manager.fault_counts import OnFault
from arena.env_manager.faults import CallError, CopyFault, Fault, RetriesSpentError
from arena.env_manager.fork_server import ForkServerPlan
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
    PipeClosedError,
)
from arena.env_manager.processes import (
    BUSY,
    FREE,
    NEVER,
    RESTING,
    SPENT,
    STARTING,
    Copy,
    CopyProcesses,
    check_open_files,
)
from arena.env_manager.remote_calls import CallResult
from arena.env_manager.serial import BaseEnvManager
from arena.env_manager.settings import ManagerSettings
from arena.env_manager.slot import Slot
from arena.envs.interface import Environment, with_global_state
from arena.system.shared_memory import map_memory, new_memory

MAILBOX_INTERVAL = 0.005
"""Seconds between two checks of the deadlines while replies keep arriving."""

CLOSING_TIME = 2.0
"""Seconds that environments get to close themselves."""

STILL_THERE = ("raised", "contract", "shape", "nan", "mask")
"""Faults that do not require a new process."""

NAMES = {STEP: "step", RESET: "reset", ASK: "call"}


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
        self._copies = [Copy(i) for i in range(env_num)]
        self._next_look = 0.0
        settings = settings or ManagerSettings()
        modules = tuple(getattr(make, "modules", ()))
        plan = ForkServerPlan(cloudpickle.dumps(make), settings.memory_limit, modules)
        self._processes = CopyProcesses(plan, settings.start_timeout)
        super().__init__(make, env_num, settings, on_fault)

    def _start(self) -> None:
        self._slots: list[Slot] = [None] * self.env_num  # type: ignore[list-item]  # filled when the entities are known
        check_open_files(self.env_num)
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
            self._faults.seeds[env_id] = seed
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
        answered = self._processes.poll(0)
        if not answered and timeout > 0:
            nearest = min(copy.deadline for copy in self._copies)
            left = min(timeout, max(nearest - time.monotonic(), 0.0))
            answered = self._processes.poll(math.ceil(1000 * left))
        for copy in answered:
            if copy.pipe is not None:  # else ``on_fault`` has closed the manager
                self._receive_answers(copy)
        now = time.monotonic()
        if not answered or now >= self._next_look:
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
        self._processes.end(copy)
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
            self._processes.disconnect(copy)
        self._processes.close()
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

    def _send(self, copy: Copy, kind: bytes, data: bytes, timeout: float) -> None:
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

    def _send_reset(self, copy: Copy) -> None:
        self._send(copy, RESET, pickle.dumps((*copy.reset_arguments, self.reads_state)), self.settings.reset_timeout)

    def _launch(self, copy: Copy) -> None:
        """Request a process for a copy."""
        i, seed = copy.env_id, self.settings.seed
        if seed is not None:
            seed = derive_seed(seed, "process", i, self._faults.ever[i])
        self._processes.launch(copy, seed, self._own_makes[i])

    # Answers ------------------------------------------------------------------------------------------------------

    def _receive_answers(self, copy: Copy) -> None:
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

    def _release(self, copy: Copy) -> None:
        copy.state, copy.request, copy.deadline = FREE, None, NEVER

    def _on_ready(self, copy: Copy, entities: tuple, turn_based: bool, state_space: spaces.Space | None) -> None:
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

    def _on_exit(self, copy: Copy) -> None:
        """Handle the end of a copy's process."""
        ended = self._processes.end_of(copy)
        text = "its process is gone" if ended is None else ended.text
        method = "constructor" if copy.state == STARTING else METHODS.get(copy.request or b"", "")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        fault = Fault("killed" if ended is None else ended.what, text, method, lines[-1] if lines else "", "ended")
        self._processes.disconnect(copy)
        self._fail(copy, fault)

    def _on_timeout(self, copy: Copy) -> None:
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
        where = self._processes.end(copy)
        cause = f"took longer than {allowed:g} s ({phase}_timeout)"
        method = "constructor" if phase == "start" else phase
        self._fail(copy, Fault("hung", f"{where}\nits {phase} {cause}".lstrip(), method, cause, "hung"))

    def _fail(self, copy: Copy, fault: Fault) -> None:
        """Resolve the pending request with a fault, and arrange the replacement."""
        i, request = copy.env_id, copy.request
        episode = not self._over[i]
        try:
            pause = self._faults.count(i, fault)
        except RetriesSpentError as spent:
            self._processes.end(copy)
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
        self._processes.end(copy)
        if pause:
            copy.state, copy.deadline = RESTING, time.monotonic() + pause
        else:
            self._launch(copy)
