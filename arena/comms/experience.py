"""Channels between a sampler and its learner: rollouts one way, published weights the other.

One update takes one rollout of each worker, so two counters describe the whole exchange: update e learns from rollout e
and makes version e + 1 of the weights, and a worker begins rollout e with version e - L or a newer one, where L is
``max_lag``. During rollout e it reads a version from e - L to e, and no version after e can be made without that
rollout. So L + 1 slots for rollouts, and as many for versions, suffice: no slot is written while the other end may read
it (Cleanba, Huang et al. 2023, has the same arrangement with queues).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from arena.common.waiting import Waiter
from arena.comms.mpi import MPI, receive
from arena.comms.ring_buffer import (
    MpiReceiver,
    MpiSender,
    RingBuffer,
    RingReceiver,
    RingSender,
    SharedMemoryReceiver,
    SharedMemorySender,
    ring_bytes,
)
from arena.comms.world import World
from arena.protocol.experience import CheckOut, LearnerAnswer, SamplerOffer, SamplerReady
from arena.system.shared_memory import OfferedMemory, find_memory, offer_memory

_TALK, _ROLLOUTS, _VERSIONS, _THINGS, _TAGS = 0, 1, 2, 3, 4
_FIRST_TAG = 1000  # above the tags of seats


def _tag(worker: int, kind: int) -> int:
    """Return the tag of a stream between a player's worker and its learner; one rank may have several workers."""
    return _FIRST_TAG + worker * _TAGS + kind


class SamplerChannel:
    """The worker's end of the channel to its learner.

    Attributes:
      rollouts: ring buffer of rollouts, bytes.
      versions: ring buffer of published weights, bytes.
    """

    def __init__(
        self, world: World, learner: int, waiter: Waiter, offer: SamplerOffer, max_lag: int, name: str
    ) -> None:
        """Connect to the learner.

        Args:
          world: all ranks.
          learner: rank of the learner.
          waiter: how this rank waits.
          offer: description of the rollouts, without memory.
          max_lag: L.
          name: of the learner, for error messages.
        """
        self._comm, self._learner, self._waiter, self._name = world.steps, learner, waiter, name
        self._worker, count = offer.worker, max_lag + 1
        offered = _offered(world, [learner], offer.size, count)
        memory = None if offered is None else offered.name
        self._leaving = [self._comm.isend(offer._replace(memory=memory), learner, _tag(offer.worker, _TALK))]
        answer: LearnerAnswer = receive(self._comm, learner, _tag(offer.worker, _TALK), waiter, f"the answer of {name}")
        rollouts = RingBuffer(offer.size, count, offered.view if offered is not None and answer.has_memory else None)
        self.rollouts = rollouts.buffers
        self._sender: RingSender = SharedMemorySender(rollouts)
        if not answer.has_memory:
            self._sender = MpiSender(self._comm, learner, _tag(offer.worker, _ROLLOUTS), self.rollouts)
        found = None if answer.memory is None else find_memory(answer.memory, ring_bytes(answer.size, count))
        versions = RingBuffer(answer.size, count, found)
        self.versions = versions.buffers
        self._receiver: RingReceiver = SharedMemoryReceiver(versions)
        if found is None:
            self._receiver = MpiReceiver(self._comm, learner, _tag(offer.worker, _VERSIONS), self.versions)
        self._leaving.append(self._comm.isend(SamplerReady(found is not None), learner, _tag(offer.worker, _TALK)))
        if offered is not None:
            offered.withdraw()
        self.by_message = found is None or not answer.has_memory

    def wait_for_version(self, version: int) -> int:
        """Wait until a version is published, and return the number of the newest one.

        Raises:
          HangError: it was not published within ``waits.abort_after``.
        """
        if self._receiver.posted() <= version:
            self._waiter.until(
                lambda: self._receiver.posted() > version,
                lambda: f"version {version} of {self._name} (rank {self._learner})",
            )
        return self._receiver.posted() - 1

    def version(self, number: int) -> np.ndarray:
        """Return the bytes of a published version that cannot have been overwritten yet."""
        return self.versions[number % len(self.versions)]

    def release(self, version: int) -> None:
        """Mark a version and all before it as read."""
        self._receiver.release(version)

    def wait_for_buffer(self, number: int) -> int:
        """Return the slot for a rollout, once its previous content has been sent."""
        if not self._sender.is_free(number):
            self._waiter.until(lambda: self._sender.is_free(number), lambda: f"rollouts to leave for {self._name}")
        return number % len(self.rollouts)

    def post(self, number: int) -> None:
        """Send the rollout in this slot."""
        self._sender.post(number)

    def post_object(self, number: int, value: Any) -> None:
        """Send a pickled object along with a rollout, which may have no bytes."""
        self._leaving = [request for request in self._leaving if not request.Test()]
        self._leaving.append(self._comm.isend(value, self._learner, _tag(self._worker, _THINGS)))
        self.post(number)

    def check_out(self, sent: int) -> None:
        """Announce that no more rollouts follow."""
        self._leaving.append(self._comm.isend(CheckOut(sent), self._learner, _tag(self._worker, _TALK)))

    def close(self) -> None:
        """Wait until everything has been sent, and free the requests; the last version has arrived."""
        self._waiter.until(
            lambda: MPI.Request.Testall(self._leaving), lambda: f"the last words to {self._name} to leave"
        )
        self._sender.close(self._waiter)
        self._receiver.close()


class LearnerChannel:
    """The learner's end of the channel to one of its workers.

    Attributes:
      offer: the worker's description of itself.
      rollouts: ring buffer of its rollouts, bytes.
      received: number of its rollouts that were learned from or dropped.
      checked_out: number of rollouts it has sent in all; None while it may send more.
    """

    def __init__(self, world: World, rank: int, worker: int, waiter: Waiter, name: str) -> None:
        """Wait for the worker's offer; error messages call the worker ``name``."""
        self._comm, self._rank, self._worker, self._waiter, self._name = world.steps, rank, worker, waiter, name
        self.offer: SamplerOffer = receive(self._comm, rank, _tag(worker, _TALK), waiter, f"the offer of {name}")
        self.received = 0
        self.checked_out: int | None = None

    def answer(self, max_lag: int, versions: "Versions") -> None:
        """Send the location of the versions, and prepare to receive rollouts."""
        offer, count = self.offer, max_lag + 1
        found = None if offer.memory is None else find_memory(offer.memory, ring_bytes(offer.size, count))
        rollouts = RingBuffer(offer.size, count, found)
        self.rollouts = rollouts.buffers
        self._receiver: RingReceiver = SharedMemoryReceiver(rollouts)
        if found is None:
            self._receiver = MpiReceiver(self._comm, self._rank, _tag(self._worker, _ROLLOUTS), self.rollouts)
        talk = _tag(self._worker, _TALK)
        said = LearnerAnswer(versions.size, versions.name, found is not None)
        self._leaving = self._comm.isend(said, self._rank, talk)
        ready: SamplerReady = receive(self._comm, self._rank, talk, self._waiter, f"the word of {self._name}")
        if not ready.has_memory:
            versions.send_to(self._rank, _tag(self._worker, _VERSIONS))

    def wait_for_rollout(self, number: int) -> int:
        """Return the slot of a rollout, once it has arrived.

        Raises:
          HangError: it did not arrive within ``waits.abort_after``.
        """
        if self._receiver.posted() <= number:
            self._waiter.until(
                lambda: self._receiver.posted() > number,
                lambda: f"experience {number} of {self._name} (rank {self._rank})",
            )
        return number % len(self.rollouts)

    def wait_for_object(self, number: int) -> Any:
        """Return the object sent along with a rollout; None if the worker has checked out without this one."""

        def here() -> bool:
            return self._receiver.posted() > number or self.is_out()

        if not here():
            self._waiter.until(here, lambda: f"experience {number} of {self._name} (rank {self._rank})")
        if self._receiver.posted() <= number and self.checked_out is not None and self.checked_out <= number:
            return None
        return receive(self._comm, self._rank, _tag(self._worker, _THINGS), self._waiter, f"experience {number}")

    def is_out(self) -> bool:
        """Return whether the worker has checked out."""
        if self.checked_out is None and self._comm.iprobe(self._rank, _tag(self._worker, _TALK)):
            name = f"the last word of {self._name}"
            self.checked_out = receive(self._comm, self._rank, _tag(self._worker, _TALK), self._waiter, name).sent
        return self.checked_out is not None

    def release(self, number: int) -> None:
        """Mark a rollout as learned from or dropped."""
        self.received = number + 1
        self._receiver.release(number)

    def drop_late(self) -> int:
        """Drop the rollouts that have arrived and return their number; also check for the worker's check-out."""
        arrived = self._receiver.posted() - self.received
        if arrived:
            self.release(self.received + arrived - 1)
        self.is_out()
        return arrived

    def close(self) -> None:
        """Free the requests and the memory."""
        self._waiter.until(self._leaving.Test, lambda: f"the answer to {self._name} to leave")
        self._receiver.close()


class Versions:
    """Published weights of a learner, for all of its workers.

    Attributes:
      size: bytes of one version.
      name: name by which workers on this machine map the segment; None if there are none.
    """

    def __init__(self, world: World, ranks: Sequence[int], waiter: Waiter, size: int, max_lag: int) -> None:
        """Allocate L + 1 versions; ``ranks`` are those of the workers."""
        self._world, self._waiter, self.size = world, waiter, size
        self._offered = _offered(world, ranks, size, max_lag + 1)
        self.name = None if self._offered is None else self._offered.name
        self._ring = RingBuffer(size, max_lag + 1, None if self._offered is None else self._offered.view)
        self._senders: list[RingSender] = [SharedMemorySender(self._ring)]

    def send_to(self, rank: int, tag: int) -> None:
        """Also send each version to a rank that does not share the memory."""
        self._senders.append(MpiSender(self._world.steps, rank, tag, self._ring.buffers))

    def all_met(self) -> None:
        """Withdraw the offer of the segment: every worker has mapped it or never will."""
        if self._offered is not None:
            self._offered.withdraw()
            self._offered = None

    def place(self, version: int) -> np.ndarray:
        """Return the bytes to write a version to, once their previous content has been sent."""
        for sender in self._senders:
            if not sender.is_free(version):
                self._waiter.until(partial(sender.is_free, version), lambda: "an older version to leave")
        return self._ring.buffers[version % len(self._ring.buffers)]

    def publish(self, version: int) -> None:
        """Publish a version that has been written."""
        for sender in self._senders:
            sender.post(version)

    def close(self) -> None:
        """Free the requests and the memory, once the last version has been sent."""
        for sender in self._senders:
            sender.close(self._waiter)


def _offered(world: World, others: Sequence[int], size: int, count: int) -> OfferedMemory | None:
    """Return memory for this many buffers that ranks of this machine can map; None if no such rank needs it."""
    here: Any = world.nodes[world.rank]
    if all(world.nodes[other] != here for other in others):
        return None
    return offer_memory(ring_bytes(size, count))
