"""What can go wrong with one copy of an environment, and what it is called."""

import traceback
from typing import NamedTuple

from arena.common.errors import GivenUpError
from arena.envs.interface import Timestep
from arena.protocol.wire import ShapeError


class Fault(NamedTuple):
    """What happened to one copy.

    Attributes:
      what: ``raised``; ``exited``, ``killed`` (its process); ``hung`` (past a timeout); ``shape``, ``nan`` (what it
        returned); ``memory`` (past the limit).
      text: what is known of it, with the traceback where there is one.
    """

    what: str
    text: str

    @property
    def line(self) -> str:
        """The fault in one line: what ``info["restarted"]`` says."""
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
    """A copy failed more often in a row than ``max_retry`` allows: it is given up."""


class CallError(RuntimeError):
    """A call that a user made on an environment raised; the copy is as it was."""


def fault_of(error: BaseException) -> Fault:
    """Return what an exception of an environment is called."""
    if isinstance(error, CopyFault):
        return error.fault
    text = "".join(traceback.format_exception(error)).rstrip()
    if isinstance(error, ShapeError):
        return Fault("shape", text)
    if isinstance(error, NotANumberError):
        return Fault("nan", text)
    if isinstance(error, SystemExit):
        return Fault("exited", f"{text}\nthe environment called exit({error.code!r})")
    return Fault("raised", text)


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
