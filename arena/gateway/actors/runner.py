"""Execution of actors within their time limits, and the classification of their failures."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from arena.common.errors import GivenUpError
from arena.config.gateway import GatewayConfig
from arena.gateway.actors.bridge import in_greenlet, in_thread
from arena.gateway.http.responses import BadRequest, Refusal

logger = logging.getLogger(__name__)

HELD = 1.0
"""Seconds by which the deadlines of held calls are extended."""


class ActorError(Refusal):
    """An actor has failed; unlike other refusals it counts against the game."""


class ActorRunner:
    """Calls actors: plain methods in greenlets of the event loop or in threads, async ones as tasks.

    Attributes:
      is_held: whether calls wait for something that is not their fault; that time does not count.
    """

    def __init__(self, config: GatewayConfig, on_error: Callable[[], None]) -> None:
        """Prepare to call.

        Args:
          config: time limits, sizes of responses, and number of threads.
          on_error: called when an actor has failed.
        """
        self._seconds, self._max_answer, self._on_error = config.tick_timeout, config.max_answer, on_error
        self._threads = ThreadPoolExecutor(config.actor_threads, "actor") if config.actor_threads else None
        self._deadlines: _Deadlines | None = None
        self.is_held: Callable[[], bool] = lambda: False
        self._is_async: dict[Any, bool] = {}  # of functions: finding out takes as long as a call
        self._late: dict[int, tuple[Any, Future[Any]]] = {}  # actors with a thread that continues after its deadline

    async def make(self, cls: Callable[..., Any], *arguments: Any) -> Any:
        """Return a new actor.

        Raises:
          Refusal: it cannot read the client's bytes.
          ActorError: it has failed, or has taken too long.
        """
        return await self._within(f"{cls.__name__}(...)", cls, *arguments)

    async def call(self, method: Callable[[bytes], Any], data: bytes) -> bytes:
        """Return the result of an actor's method; None is empty.

        Raises:
          Refusal: it cannot read the client's bytes.
          ActorError: it has failed, has taken too long, or has returned something else than bytes.
        """
        result = await self._within(method.__qualname__, method, data)
        if result is None:
            return b""
        if not isinstance(result, bytes):
            logger.error("%s: expected bytes or None, found %s", method.__qualname__, type(result).__name__)
            raise self._failed()
        if len(result) > self._max_answer:
            text = f"the actor's answer has {len(result)} bytes, expected at most {self._max_answer}"
            raise self._error(500, "answer_too_large", text)
        return result

    async def _within(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        deadlines = self._deadlines
        if deadlines is None:  # looking up the running loop costs a system call
            deadlines = self._deadlines = _Deadlines(asyncio.get_running_loop(), self._seconds, self.is_held)
        limit = deadlines.begin()
        try:
            with limit:
                if self._is_coroutine_function(function):
                    return await function(*arguments)
                if self._threads is not None:
                    result = await self._in_thread(self._threads, function, *arguments)
                else:
                    result = await in_greenlet(limit.is_over, function, *arguments)
                return await result if inspect.isawaitable(result) else result
        except BadRequest as error:
            raise Refusal(400, "bad_body", str(error)) from None
        except Refusal:  # raised by requests of the actor
            raise
        except Exception as error:
            if limit.over:
                raise self._error(504, "tick_timeout", f"no answer within {self._seconds:g} s") from None
            if isinstance(error, GivenUpError):  # the message is complete
                logger.error("%s has failed: %s", name, error)
            else:
                logger.error("%s has failed", name, exc_info=error)
            raise self._failed() from None

    def _is_coroutine_function(self, function: Callable[..., Any]) -> bool:
        plain = getattr(function, "__func__", function)
        is_async = self._is_async.get(plain)
        if is_async is None:
            is_async = self._is_async[plain] = inspect.iscoroutinefunction(plain)
        return is_async

    async def _in_thread(self, threads: ThreadPoolExecutor, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a plain function in a thread, after one that is still busy with the same actor."""
        owner = getattr(function, "__self__", None)
        if owner is not None and id(owner) in self._late:
            await asyncio.wait([asyncio.wrap_future(self._late[id(owner)][1])])
        call = threads.submit(in_thread, asyncio.get_running_loop(), self._seconds, function, *arguments)
        try:
            return await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            if owner is not None and not call.cancel():
                self._late[id(owner)] = owner, call
                call.add_done_callback(lambda _: self._late.pop(id(owner), None))
            raise

    def _failed(self) -> ActorError:
        return self._error(500, "actor_error", "the actor failed; the server's log says why")

    def _error(self, status: int, code: str, text: str) -> ActorError:
        self._on_error()
        return ActorError(status, code, text)


class _Deadlines:
    """Ends calls that take too long. All have the same limit, so that one timer, for the oldest, suffices."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, is_held: Callable[[], bool]) -> None:
        self._loop, self._seconds, self._is_held = loop, seconds, is_held
        self.running: dict[_Limit, None] = {}  # in the order of their deadlines
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> "_Limit":
        """Return the limit of a call that begins now."""
        limit = _Limit(self, asyncio.current_task(self._loop), self._loop.time() + self._seconds)
        self.running[limit] = None
        if self._timer is None:
            self._timer = self._loop.call_at(limit.until, self._check_deadlines)
        return limit

    def _check_deadlines(self) -> None:
        self._timer = None
        now = self._loop.time()
        if self._is_held():
            for limit in self.running:
                limit.until = max(limit.until, now + HELD)
        for limit in list(self.running):
            if limit.until > now:
                self._timer = self._loop.call_at(limit.until, self._check_deadlines)
                return
            limit.end()


class _Limit:
    """Raises TimeoutError after some seconds in the task that is in it (Python 3.10 has no ``asyncio.timeout``).

    Attributes:
      until: the deadline, on the loop's clock.
      over: whether it has passed.
    """

    def __init__(self, deadlines: _Deadlines, task: "asyncio.Task[Any] | None", until: float) -> None:
        self._deadlines, self._task, self.until, self.over = deadlines, task, until, False

    def is_over(self) -> bool:
        """Return whether the deadline has passed."""
        return self.over

    def __enter__(self) -> None:
        """Begin."""

    def end(self) -> None:
        """Cancel the task."""
        self._deadlines.running.pop(self, None)
        self.over = True
        if self._task is not None:
            self._task.cancel()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._deadlines.running.pop(self, None)
        if self.over:  # even if the actor has caught the cancellation
            if self._task is not None and hasattr(self._task, "uncancel"):
                self._task.uncancel()
            raise TimeoutError from error
        self._task = None
