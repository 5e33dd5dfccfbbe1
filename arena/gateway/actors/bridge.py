"""Lets plain methods wait for the event loop: ``agent.act`` is a call, in a greenlet of the loop or in a thread."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as LateError
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

_PATIENCE = 3
"""How often a method that is too late, and waits again, is told so before it is ended."""


class _Bridge(greenlet):
    """A plain method that runs inside a task of the loop, and hands it what it waits for."""


_here = threading.local()  # of an actor's thread: its loop, and until when its call may wait


def wait_for(ask: Callable[[], "asyncio.Future[Any]"]) -> Any:
    """Return the result of what is asked of the event loop, from a plain method of an actor.

    Args:
      ask: asks, and returns the future of the answer; it is called in the loop.

    Raises:
      RuntimeError: this is no plain method of an actor.
      TimeoutError: the method has taken too long.
    """
    current = getcurrent()
    if isinstance(current, _Bridge):
        return current.parent.switch(ask())
    loop = getattr(_here, "loop", None)
    if loop is None:
        raise RuntimeError(
            "act can be called in plain methods of an actor only; in an async method, await act_async(...)"
        )

    async def answered() -> Any:
        return await ask()

    asked = asyncio.run_coroutine_threadsafe(answered(), loop)
    try:
        return asked.result(max(0.0, _here.until - time.monotonic()))
    except LateError as error:
        asked.cancel()
        raise TimeoutError("the call has taken too long") from error


def can_wait() -> bool:
    """Whether this is a plain method of an actor."""
    return isinstance(getcurrent(), _Bridge) or getattr(_here, "loop", None) is not None


async def in_greenlet(is_late: Callable[[], bool], function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a plain function returns, which may wait for the loop.

    Args:
      is_late: whether its time is over: then it gets a TimeoutError where it waits.
      function: the function.
      arguments: of it.
    """
    bridge = _Bridge(function)
    bridge.gr_context = contextvars.copy_context()
    asked = bridge.switch(*arguments)
    told = 0
    while not bridge.dead:
        try:
            answer = await asked
        except BaseException as error:
            if not is_late():
                asked = bridge.throw(error)
                continue
        else:
            if not is_late():
                asked = bridge.switch(answer)
                continue
        told += 1
        late = TimeoutError("the call has taken too long")
        asked = bridge.throw(late if told <= _PATIENCE else GreenletExit())
    return asked


def in_thread(loop: asyncio.AbstractEventLoop, seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a plain function returns, in a thread from which it may wait for the loop."""
    _here.loop, _here.until = loop, time.monotonic() + seconds
    try:
        return function(*arguments)
    finally:
        _here.loop = None
