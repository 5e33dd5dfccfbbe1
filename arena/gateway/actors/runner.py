"""Calls an actor within its time, and says how that has gone wrong where it has."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

from arena.gateway.answers import BadRequest, Refusal

logger = logging.getLogger(__name__)


class ActorError(Refusal):
    """An actor has failed; unlike other refusals it counts against the game."""


class ActorRunner:
    """Calls actors."""

    def __init__(self, seconds: float, max_answer: int, on_error: Callable[[], None]) -> None:
        """Prepare to call.

        Args:
          seconds: that a call may take.
          max_answer: bytes that it may answer.
          on_error: is called when an actor has failed.
        """
        self._seconds, self._max_answer, self._on_error = seconds, max_answer, on_error

    async def make(self, cls: Callable[..., Any], *arguments: Any) -> Any:
        """Return a new actor.

        Raises:
          Refusal: it cannot read what the client has sent.
          ActorError: it has failed, or has taken too long.
        """
        return await self._within(f"{cls.__name__}(...)", cls, *arguments)

    async def ask(self, method: Callable[[bytes], Any], data: bytes) -> bytes:
        """Return what a method of an actor answers; None is empty.

        Raises:
          Refusal: it cannot read what the client has sent.
          ActorError: it has failed, has taken too long, or has answered with something else than bytes.
        """
        said = await self._within(method.__qualname__, method, data)
        if said is None:
            return b""
        if not isinstance(said, bytes):
            logger.error("%s: expected bytes or None, found %s", method.__qualname__, type(said).__name__)
            raise self._failed()
        if len(said) > self._max_answer:
            text = f"the actor's answer has {len(said)} bytes, expected at most {self._max_answer}"
            raise self._error(500, "answer_too_large", text)
        return said

    async def _within(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        limit = _Limit(self._seconds)
        try:
            with limit:
                said = function(*arguments)
                return await said if inspect.isawaitable(said) else said
        except BadRequest as error:
            raise Refusal(400, "bad_body", str(error)) from None
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.over:
                raise self._error(504, "tick_timeout", f"no answer within {self._seconds:g} s") from None
            logger.exception("%s has failed", name)
            raise self._failed() from None

    def _failed(self) -> ActorError:
        return self._error(500, "actor_error", "the actor failed; the server's log says why")

    def _error(self, status: int, code: str, text: str) -> ActorError:
        self._on_error()
        return ActorError(status, code, text)


class _Limit:
    """Raises TimeoutError after some seconds in the task that is in it (Python 3.10 has no ``asyncio.timeout``).

    Attributes:
      over: whether they are over.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self.over = seconds, False

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._cancel)

    def _cancel(self) -> None:
        self.over = True
        if self._task is not None:
            self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._timer.cancel()
        if self.over and kind is asyncio.CancelledError:
            if self._task is not None and hasattr(self._task, "uncancel"):
                self._task.uncancel()
            raise TimeoutError from error
