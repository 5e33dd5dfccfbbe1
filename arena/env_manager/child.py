"""The process of one environment copy: constructs the environment and executes the manager's commands."""

import contextlib
import logging
import os
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from arena.common.errors import ConfigError
from arena.env_manager.faults import CallError, fault_of
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
)
from arena.env_manager.remote_calls import call_by_name
from arena.env_manager.slot import Slot
from arena.envs.interface import Environment, Timestep, state_space_of, with_global_state
from arena.system.shared_memory import map_memory

METHODS = {STEP: "step", RESET: "reset"}
"""Method of the environment that each command calls."""

WITH_STATE = b"state"
"""Data of a step after which the global state is read, too."""

PATIENCE = 60.0
"""Seconds that a manager may be busy elsewhere while a long reply waits to be read."""


def serve(pipe: Pipe, make: Callable[[int], Environment], env_id: int) -> None:
    """Own copy ``env_id`` until the manager closes it or ends.

    Raises:
      SystemExit: the environment's own code ends the process.
    """
    if env_id > 0:  # all copies would issue the same warnings
        logging.getLogger("arena.envs").setLevel(logging.ERROR)
    try:
        environment = make(env_id)
        state_space = state_space_of(environment)
        hello = pickle.dumps((tuple(environment.entities), environment.turn_based, state_space))
    except Exception as error:
        with contextlib.suppress(PipeClosedError):
            _report_error(pipe, error, "constructor")
        return
    try:
        with contextlib.suppress(PipeClosedError):
            pipe.send(HELLO, hello)
            entities = with_global_state(environment.entities, state_space)
            descriptor = pipe.receive_descriptor()
            memory = map_memory(descriptor, Slot(entities).size)
            os.close(descriptor)
            _Copy(pipe, environment, Slot(entities, memory)).serve()
    finally:
        with contextlib.suppress(Exception):
            environment.close()


def _report_error(pipe: Pipe, error: Exception, method: str) -> None:
    """Report why the environment failed in a command."""
    if isinstance(error, ConfigError):
        pipe.send(CONFIG, str(error).encode())
    else:
        pipe.send(FAULT, pickle.dumps(tuple(fault_of(error, method))))


class _Copy:
    """A constructed copy."""

    def __init__(self, pipe: Pipe, environment: Environment, slot: Slot) -> None:
        self._pipe, self._environment, self._slot = pipe, environment, slot
        self._state = getattr(environment, "state", None)

    def serve(self) -> None:
        pipe, slot, step = self._pipe, self._slot, self._environment.step
        while True:
            kind, data = pipe.receive()
            try:
                if kind == STEP:
                    self._answer(step(slot.actions()), with_state=data == WITH_STATE)
                elif kind == RESET:
                    seed, options, with_state = pickle.loads(data)
                    self._answer(self._environment.reset(seed, options), with_state=with_state)
                elif kind == ASK:
                    self._run_call(*pickle.loads(data))
                elif kind == CLOSE:
                    self._environment.close()
                    return
            except PipeClosedError:
                raise
            except Exception as error:
                _report_error(pipe, error, METHODS.get(kind, ""))

    def _answer(self, timestep: Timestep, *, with_state: bool) -> None:
        self._slot.put(timestep)
        if with_state:
            assert self._state is not None
            self._slot.put_state(self._state())
        if any(timestep.infos):
            self._pipe.send(WITH_INFOS, _pickled(timestep.infos), timeout=PATIENCE)
        else:
            self._pipe.send(PLAIN)

    def _run_call(self, kind: str, name: str, args: tuple, kwargs: dict[str, Any]) -> None:
        try:
            value = call_by_name(self._environment, kind, name, args, kwargs)
            reply, data = VALUE, pickle.dumps(value)
        except (AttributeError, CallError) as error:
            reply, data = REFUSAL, pickle.dumps((type(error) is AttributeError, str(error)))
        except Exception as error:  # cannot be pickled
            reply, data = REFUSAL, pickle.dumps((False, f"{name!r} cannot be sent to another process: {error}"))
        self._pipe.send(reply, data, timeout=PATIENCE)


def _pickled(infos: Sequence[dict]) -> bytes:
    """Return the infos without the values that cannot be pickled: a handle means nothing in another process."""
    try:
        return pickle.dumps(list(infos))
    except Exception:
        return pickle.dumps([{key: value for key, value in info.items() if _can_travel(value)} for info in infos])


def _can_travel(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True
