"""Small pickled messages between ranks, off the step path."""

from collections.abc import Callable, Iterable
from typing import Any

from arena.common.waiting import Waiter
from arena.comms.mpi import MPI, receive
from arena.comms.world import ANSWER, DIRECT, MAIL, TAGS, World


class Mailbox:
    """Small pickled messages between the root and the other ranks, off the step path.

    Attributes:
      for_root: returns messages for the root that are due, which any other message takes along.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._under_way: list[MPI.Request] = []
        self._put_by: list[tuple[int, Any]] = []
        self.for_root: Callable[[], Iterable[Any]] = tuple

    def post(self, rank: int, message: Any) -> None:
        """Send without waiting, after the messages for the root that are due."""
        self._under_way = [request for request in self._under_way if not request.Test()]
        for due in self.for_root():
            self._under_way.append(self._world.mail.isend(due, 0, MAIL))
        self._under_way.append(self._world.mail.isend(message, rank, MAIL))

    def poll(self, *kinds: type) -> tuple[int, Any] | None:
        """Return (sender, message) for the next message that has arrived, or None.

        Args:
          kinds: types of message to return; others stay queued. Without any, every type is returned.
        """
        for place, mail in enumerate(self._put_by):
            if not kinds or isinstance(mail[1], kinds):
                return self._put_by.pop(place)
        status = MPI.Status()
        while (message := self._world.mail.improbe(MPI.ANY_SOURCE, MAIL, status)) is not None:
            mail = status.Get_source(), message.recv()
            if not kinds or isinstance(mail[1], kinds):
                return mail
            self._put_by.append(mail)
        return None

    def deliver(self, rank: int, value: Any, number: int = 0) -> None:
        """Send to a rank that waits in ``collect``; ``number`` distinguishes several messages to one rank."""
        self._under_way.append(self._world.mail.isend(value, rank, DIRECT + TAGS * number))

    def collect(self, rank: int, waiter: Waiter, description: str, number: int = 0) -> Any:
        """Wait for and return the message that ``rank`` delivers to this one."""
        return receive(self._world.mail, rank, DIRECT + TAGS * number, waiter, description)

    def reply(self, rank: int, value: Any, number: int = 0) -> None:
        """Reply to a delivery of ``rank``; on a tag of its own, since both ends may be this rank."""
        self._under_way.append(self._world.mail.isend(value, rank, ANSWER + TAGS * number))

    def collect_reply(self, rank: int, waiter: Waiter, description: str, number: int = 0) -> Any:
        """Wait for and return the reply of ``rank`` to a delivery."""
        return receive(self._world.mail, rank, ANSWER + TAGS * number, waiter, description)

    def flush(self, waiter: Waiter) -> None:
        """Wait until every message has been sent."""
        for request in self._under_way:
            waiter.until(request.Test, lambda: "messages to leave")
        self._under_way = []

    def cancel_all(self) -> None:
        """Cancel all pending sends; their communicator no longer exists."""
        self._under_way, self._put_by = [], []
