"""Waits of plain methods for the event loop: ``agent.act`` is a call, in a greenlet of the loop or in a thread."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as LateError
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

_PATIENCE = 3
"""Number of timeouts that a late method gets, if it waits again, before it is ended."""


class _Bridge(greenlet):
    """A plain method that runs inside a task of the loop, and passes it the futures that it waits for."""


_here = threading.local()  # of an actor's thread: its loop, and the deadline of its call


def wait_for(ask: Callable[[], "asyncio.Future[Any]"]) -> Any:
    """Return the result of a request to the event loop, from a plain method of an actor.

    Args:
      ask: makes the request and returns its future; called in the loop.

    Raises:
      RuntimeError: the caller is not a plain method of an actor.
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

    future = asyncio.run_coroutine_threadsafe(answered(), loop)
    try:
        return future.result(max(0.0, _here.until - time.monotonic()))
    except LateError as error:
        future.cancel()
        raise TimeoutError("the call has taken too long") from error


def can_wait() -> bool:
    """Return whether the caller is a plain method of an actor."""
    return isinstance(getcurrent(), _Bridge) or getattr(_here, "loop", None) is not None


async def in_greenlet(is_late: Callable[[], bool], function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a plain function that may wait for the loop.

    Args:
      is_late: whether its deadline has passed: then its waits raise a TimeoutError.
      function: the function.
      arguments: its arguments.
    """
    bridge = _Bridge(function)
    bridge.gr_context = contextvars.copy_context()
    future = bridge.switch(*arguments)
    timeouts = 0
    while not bridge.dead:
        try:
            answer = await future
        except BaseException as error:
            if not is_late():
                future = bridge.throw(error)
                continue
        else:
            if not is_late():
                future = bridge.switch(answer)
                continue
        timeouts += 1
        late = TimeoutError("the call has taken too long")
        future = bridge.throw(late if timeouts <= _PATIENCE else GreenletExit())
    return future


def in_thread(loop: asyncio.AbstractEventLoop, seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a plain function in a thread, from which it may wait for the loop."""
    _here.loop, _here.until = loop, time.monotonic() + seconds
    try:
        return function(*arguments)
    finally:
        _here.loop = None
