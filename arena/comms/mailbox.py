"""Small messages between the root and the others."""

from typing import Any

from arena.common.waiting import Waiter
from arena.comms.mpi import MPI, take
from arena.comms.world import ANSWER, DIRECT, MAIL, TAGS, World


class Mailbox:
    """Small pickled messages between the root and the others, off the step path."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._under_way: list[MPI.Request] = []
        self._put_by: list[tuple[int, Any]] = []

    def post(self, rank: int, message: Any) -> None:
        """Send without waiting."""
        self._under_way = [request for request in self._under_way if not request.Test()]
        self._under_way.append(self._world.mail.isend(message, rank, MAIL))

    def poll(self, *kinds: type) -> tuple[int, Any] | None:
        """Return (sender, message) for the next message that has arrived, or None.

        Args:
          kinds: of message to return; others stay for who asks for theirs. Without them, any.
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

    def hand(self, rank: int, thing: Any, number: int = 0) -> None:
        """Send to a rank that will ask for it with ``take``; ``number`` tells things of one rank from each other."""
        self._under_way.append(self._world.mail.isend(thing, rank, DIRECT + TAGS * number))

    def take(self, rank: int, waiter: Waiter, what: str, number: int = 0) -> Any:
        """Return what ``rank`` hands over."""
        return take(self._world.mail, rank, DIRECT + TAGS * number, waiter, what)

    def answer(self, rank: int, thing: Any, number: int = 0) -> None:
        """Answer what ``rank`` has handed over; apart from that, since both may be this rank."""
        self._under_way.append(self._world.mail.isend(thing, rank, ANSWER + TAGS * number))

    def take_answer(self, rank: int, waiter: Waiter, what: str, number: int = 0) -> Any:
        """Return what ``rank`` answers to what was handed to it."""
        return take(self._world.mail, rank, ANSWER + TAGS * number, waiter, what)

    def flush(self, waiter: Waiter) -> None:
        """Wait until everything that was sent is under way for good."""
        for request in self._under_way:
            waiter.until(request.Test, lambda: "messages to leave")
        self._under_way = []

    def forget(self) -> None:
        """Give up on what was sent: the world that it was sent in is gone."""
        self._under_way, self._put_by = [], []
