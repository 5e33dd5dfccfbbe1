"""Plants faults into an environment, of any kind: a wrapper for configurations that show what becomes of them.

    env:
      use: gymnasium:CartPole-v1
      wrappers: [{use: "benchmarks/tools/fault_injection.py:plant", settings: {tickets: /tmp/faults, faults: [[raise,
        100]]}}]

Each fault happens once in a run, to the first copy that creates the fault's ticket, a file. The file records the fault,
its time and its process.
"""

import ctypes
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("raise", "exit", "segfault", "kill", "hang", "leak", "shape", "nan", "nan_reward", "inf_reward")
"""Kinds of faults. ``leak`` takes 64 MB at a time, at most 4 GB."""

CATCH_UP = 20
"""Number of past turns in which a new copy looks for faults that no copy has taken."""

RESET = "reset:"
"""Before a kind: at the first reset after its step, instead of in the step."""


def plant(
    env: Any,
    tickets: str,
    faults: Sequence[tuple[str, int]] = (),
    period: float | None = None,
    count: int = 0,
    kinds: Sequence[str] = ("raise",),
) -> Any:
    """Return ``env`` with faults in its ``step`` and ``reset``.

    Args:
      env: environment to inject faults into; its methods are replaced.
      tickets: the folder of the files; made where it is not there.
      faults: kind, and step (of all that this copy has taken) at which it is due.
      period: seconds between two faults, from the first step of any copy on, ``count`` of them at random copies.
      count: how many of those.
      kinds: what they are, in turn.
    """
    planted = _Planted(env, Path(tickets), list(faults), period, count, kinds)
    env.step, env.reset = planted.step, planted.reset
    return env


class _Planted:
    """The faults of one copy."""

    def __init__(
        self,
        env: Any,
        tickets: Path,
        faults: Sequence[tuple[str, int]],
        period: float | None,
        count: int,
        kinds: Sequence[str],
    ) -> None:
        tickets.mkdir(parents=True, exist_ok=True)
        self._step, self._reset = env.step, env.reset
        self._tickets, self._faults = tickets, faults
        self._period, self._count, self._kinds = period, count, kinds
        self._steps = 0
        self._turn = 0
        self._due = 0.0
        self._random = random.Random(os.getpid() ^ id(self))

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Step, unless a fault is due."""
        self._steps += 1
        for number, (kind, at) in enumerate(self._faults):
            if at == self._steps and not kind.startswith(RESET) and self._take(f"{number}", kind):
                return happen(kind, lambda: self._step(*args, **kwargs))
        if self._period is not None and time.time() >= self._due and self._turn < self._count:
            kind = self._scheduled(self._period)
            if kind is not None:
                return happen(kind, lambda: self._step(*args, **kwargs))
        return self._step(*args, **kwargs)

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        """Reset, unless a fault is due."""
        for number, (kind, at) in enumerate(self._faults):
            if at <= self._steps and kind.startswith(RESET) and self._take(f"{number}", kind):
                return happen(kind.removeprefix(RESET), lambda: self._reset(*args, **kwargs))
        return self._reset(*args, **kwargs)

    def _scheduled(self, period: float) -> str | None:
        """Return a fault that is due now and that no other copy has taken, and schedule the next one."""
        begin = self._begin()
        now = min(int((time.time() - begin) / period), self._count - 1)
        if not self._due:
            self._turn = max(0, now - CATCH_UP)
        taken = None
        while self._turn <= now and taken is None:
            kind = self._kinds[self._turn % len(self._kinds)]
            taken = kind if self._take(f"turn-{self._turn}", kind) else None
            self._turn += 1
        # At a random moment of its turn, so that chance decides which copy it is.
        self._due = begin + (self._turn + 0.9 * self._random.random()) * period
        return taken

    def _begin(self) -> float:
        path = self._tickets / "begin"
        try:
            with path.open("x") as file:
                file.write(repr(time.time()))
        except FileExistsError:
            pass
        return float(path.read_text() or time.time())

    def _take(self, name: str, kind: str) -> bool:
        try:
            with (self._tickets / f"{name}.json").open("x") as file:
                json.dump({"kind": kind, "time": time.time(), "pid": os.getpid()}, file)
        except FileExistsError:
            return False
        return True


def happen(kind: str, go_on: Callable[[], Any]) -> Any:
    """Make a fault happen, in a call that would otherwise return ``go_on()``."""
    if kind == "raise":
        raise RuntimeError("a planted mistake")
    if kind == "exit":
        sys.exit(3)
    if kind == "segfault":
        ctypes.string_at(0)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "leak":
        hoard = []
        while len(hoard) < 64:
            hoard.append(np.ones(8_000_000))
            time.sleep(0.005)
    if kind in ("hang", "leak"):
        while True:
            time.sleep(1.0)
    return spoiled(kind, go_on())


def spoiled(kind: str, returned: Any) -> Any:
    """Return an environment's result with an error in it, for both interfaces."""
    timestep = hasattr(returned, "observations")
    items = list(returned)
    observation = np.asarray(items[0][0] if timestep else items[0], np.float32)
    if kind in ("nan_reward", "inf_reward"):
        reward = float(kind.removesuffix("_reward"))
        items[1] = [reward] * len(items[1]) if timestep else reward
    else:
        wrong = observation[:-1] if kind == "shape" else np.full_like(observation, np.nan)
        items[0] = [wrong, *items[0][1:]] if timestep else wrong
    return type(returned)(*items) if timestep else tuple(items)
