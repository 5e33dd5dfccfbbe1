"""Faults of environment copies, and their descriptions."""

import traceback
from typing import NamedTuple

from arena.common.errors import ContractError, GivenUpError
from arena.common.masks import NoActionError
from arena.common.user_code import source_of_error
from arena.envs.interface import Timestep
from arena.protocol.wire import ShapeError

FAILURES = (Exception, SystemExit)
"""Exceptions of an environment's own code; a keyboard interrupt is the arena's."""


class Fault(NamedTuple):
    """A fault of one copy.

    Attributes:
      what: ``raised``; ``exited``, ``killed`` (its process); ``hung`` (past a timeout); ``contract``, ``shape``,
        ``nan``, ``mask`` (its return values); ``memory`` (past the limit).
      text: description, with the traceback if there is one.
      method: method of the environment: ``reset``, ``step`` or ``constructor``; empty if unknown.
      cause: the exception in one line, with file and line of the user's code.
      kind: exception name and location; equal for faults of one cause.
    """

    what: str
    text: str
    method: str = ""
    cause: str = ""
    kind: str = ""

    @property
    def line(self) -> str:
        """One-line description of the fault, as in ``info["restarted"]``."""
        if self.what == "contract":
            return f"contract: {self.method} {self.cause}"
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return f"{self.what}: {lines[-1]}" if lines else self.what


class CopyFault(Exception):
    """The step of one copy failed: its episode is over; the copy is being replaced and must be reset."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.line)
        self.fault = fault


class NotANumberError(ValueError):
    """An observation or a reward of an environment is NaN."""


class RetriesSpentError(GivenUpError):
    """A copy has failed more often in a row than ``max_retry`` allows, and is given up.

    Attributes:
      sentence: description of the last failure, without the traceback at the end of the text.
    """

    def __init__(self, sentence: str, traceback_: str = "") -> None:
        super().__init__(f"{sentence}\n{traceback_}".rstrip())
        self.sentence = sentence


class CallError(RuntimeError):
    """A method that the user called on an environment raised; the copy is unchanged."""


def fault_of(error: BaseException, method: str = "") -> Fault:
    """Return the fault for an exception of an environment's method."""
    if isinstance(error, CopyFault):
        return error.fault
    text = "".join(traceback.format_exception(error)).rstrip()
    source, name = source_of_error(error), type(error).__name__
    if isinstance(error, ContractError):
        return Fault("contract", text, method, str(error), "contract")
    if isinstance(error, ShapeError | NotANumberError):
        kind = "shape" if isinstance(error, ShapeError) else "nan"
        return Fault(kind, text, method, str(error).removeprefix("the environment "), name)
    if isinstance(error, NoActionError):
        return Fault("mask", text, method, f"left no action: {error}", name)
    if isinstance(error, SystemExit):
        cause = f"called exit({error.code!r}){source}"
        return Fault("exited", f"{text}\nthe environment {cause}", method, cause, f"{name}{source}")
    first_line = f"{name}: {error}".splitlines()[0].removesuffix(": ")
    return Fault("raised", text, method, f"raised {first_line}{source}", f"{name}{source}")


def cut_short(timestep: Timestep, turn_based: bool, info: dict) -> Timestep:
    """Return the truncated end of an episode that stops at this timestep, with ``info`` for every entity."""
    count = len(timestep.rewards)
    return timestep._replace(
        rewards=[0.0] * count,
        terminated=[False] * count,
        truncated=[True] * count if turn_based else list(timestep.acting),
        infos=[dict(info) for _ in range(count)],
        acting=[False] * count,
        over=True,
    )
