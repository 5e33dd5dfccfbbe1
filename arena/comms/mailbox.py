"""Small messages between the root and the others."""

from typing import Any

from arena.comms.mpi import MPI, take
from arena.comms.world import DIRECT, MAIL, World
from arena.waiting import Waiter


class Mailbox:
    """Small pickled messages between the root and the others, off the step path."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._under_way: list[MPI.Request] = []

    def post(self, rank: int, message: Any) -> None:
        """Send without waiting."""
        self._under_way = [request for request in self._under_way if not request.Test()]
        self._under_way.append(self._world.mail.isend(message, rank, MAIL))

    def poll(self) -> tuple[int, Any] | None:
        """Return (sender, message) for the next message that has arrived, or None."""
        status = MPI.Status()
        message = self._world.mail.improbe(MPI.ANY_SOURCE, MAIL, status)
        return None if message is None else (status.Get_source(), message.recv())

    def hand(self, rank: int, thing: Any) -> None:
        """Send to a rank that will ask for it with ``take``."""
        self._under_way.append(self._world.mail.isend(thing, rank, DIRECT))

    def take(self, rank: int, waiter: Waiter, what: str) -> Any:
        """Return what ``rank`` hands over."""
        return take(self._world.mail, rank, DIRECT, waiter, what)

    def flush(self, waiter: Waiter) -> None:
        """Wait until everything that was sent is under way for good."""
        for request in self._under_way:
            waiter.until(request.Test, lambda: "messages to leave")
        self._under_way = []

    def forget(self) -> None:
        """Give up on what was sent: the world that it was sent in is gone."""
        self._under_way = []
