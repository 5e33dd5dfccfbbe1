"""What can go wrong with one copy of an environment, and what it is called."""

import traceback
from typing import NamedTuple

from arena.common.errors import ContractError, GivenUpError
from arena.common.masks import NoActionError
from arena.common.user_code import source_of_error
from arena.envs.interface import Timestep
from arena.protocol.wire import ShapeError


class Fault(NamedTuple):
    """What happened to one copy.

    Attributes:
      what: ``raised``; ``exited``, ``killed`` (its process); ``hung`` (past a timeout); ``contract``, ``shape``,
        ``nan``, ``mask`` (what it returned); ``memory`` (past the limit).
      text: what is known of it, with the traceback where there is one.
      method: of the environment: ``reset``, ``step`` or ``constructor``; empty where it is not known.
      cause: the exception in one line, with file and line of the user's code.
      kind: name of the exception, and place; equal in faults of one cause.
    """

    what: str
    text: str
    method: str = ""
    cause: str = ""
    kind: str = ""

    @property
    def line(self) -> str:
        """The fault in one line: what ``info["restarted"]`` says."""
        if self.what == "contract":
            return f"contract: {self.method} {self.cause}"
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return f"{self.what}: {lines[-1]}" if lines else self.what


class CopyFault(Exception):
    """One copy's step failed. Its episode is over; the copy is being replaced and must be reset."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.line)
        self.fault = fault


class NotANumberError(ValueError):
    """An environment returned NaN as an observation or a reward."""


class RetriesSpentError(GivenUpError):
    """A copy failed more often in a row than ``max_retry`` allows: it is given up.

    Attributes:
      sentence: what has failed, without the traceback that the text ends with.
    """

    def __init__(self, sentence: str, traceback_: str = "") -> None:
        super().__init__(f"{sentence}\n{traceback_}".rstrip())
        self.sentence = sentence


class CallError(RuntimeError):
    """A call that a user made on an environment raised; the copy is as it was."""


def fault_of(error: BaseException, method: str = "") -> Fault:
    """Return the fault that an exception of an environment's method is."""
    if isinstance(error, CopyFault):
        return error.fault
    text = "".join(traceback.format_exception(error)).rstrip()
    source, name = source_of_error(error), type(error).__name__
    if isinstance(error, ContractError):
        return Fault("contract", text, method, str(error), "contract")
    if isinstance(error, ShapeError | NotANumberError):
        what = "shape" if isinstance(error, ShapeError) else "nan"
        return Fault(what, text, method, str(error).removeprefix("the environment "), name)
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
