"""The handshake of an environment process with the workers of its match, which opens the match's channel."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from arena.comms import MatchChannel, SeatSemaphores, World, agree_on_time_slice, create_semaphores, memory_needed
from arena.environment.setup import MatchSetup, Services
from arena.envs.interface import EntitySpaces
from arena.protocol.seat import SeatAnswer, SeatOffer, SeatRequest
from arena.protocol.wire import Block
from arena.system.shared_memory import OfferedMemory, offer_memory


class SeatOffers(NamedTuple):
    """Description of the seats of a match.

    Attributes:
      entities: entities of each seat.
      blocks: blocks of each seat.
      slices: copies of each batch.
      same_step: whether finished episodes restart within the same step.
      turn_based: whether entities may skip steps.
      acts_on_request: whether entities act on request (external games) and not in lock-step.
    """

    entities: Sequence[tuple[EntitySpaces, ...]]
    blocks: Sequence[Sequence[Block]]
    slices: Sequence[slice]
    same_step: bool
    turn_based: bool
    acts_on_request: bool = False


class _Shared(NamedTuple):
    """Shared memory and semaphores of a match's seats, offered to their workers.

    Attributes:
      memories: memory of each seat; None if its worker is on another machine, or there is none.
      semaphores: semaphores of each seat; empty if the ranks do not share a core.
    """

    memories: list[OfferedMemory | None]
    semaphores: list[SeatSemaphores]


def collect_requests(setup: MatchSetup, services: Services) -> list[SeatRequest]:
    """Wait for the requests of a match's workers, and return them by seat; ``connect_seats`` must follow."""
    return [
        services.mailbox.collect_reply(rank, services.waiter, "the request of a seat's worker", i)
        for i, rank in enumerate(setup.worker_ranks)
    ]


def connect_seats(setup: MatchSetup, services: Services, seats: SeatOffers, *, in_order: bool) -> MatchChannel:
    """Offer each worker its seat, with shared memory if possible, wait for the replies, and open the channel.

    Args:
      setup: description of the match.
      services: services of this rank.
      seats: description of the seats.
      in_order: whether to accept batches in their order instead of that of their arrival.
    """
    world, mailbox, waiter = services.world, services.mailbox, services.waiter
    batch_copies = [s.stop - s.start for s in seats.slices]
    # However this ends, no offer is left open: the other ends have mapped the memory then, or never will.
    with ExitStack() as offers:
        shared = _offer(setup, world, seats, batch_copies, offers)
        time_slice = agree_on_time_slice(mailbox, waiter, world.rank, setup.core_ranks) if setup.core_ranks else None
        for i, rank in enumerate(setup.worker_ranks):
            mailbox.deliver(rank, _seat_offer(setup, seats, batch_copies, shared, i), i)
        replies: list[SeatAnswer] = [
            mailbox.collect_reply(rank, waiter, "the answer to a seat's offer", i)
            for i, rank in enumerate(setup.worker_ranks)
        ]
    return MatchChannel(
        world,
        setup.worker_ranks,
        seats.blocks,
        batch_copies,
        waiter,
        [
            None if memory is None or not reply.has_memory else memory.view
            for memory, reply in zip(shared.memories, replies, strict=True)
        ],
        in_order=in_order,
        semaphores=shared.semaphores,
        time_slice=time_slice if shared.semaphores else None,
        marked=seats.acts_on_request,
    )


def _offer(
    setup: MatchSetup, world: World, seats: SeatOffers, batch_copies: Sequence[int], offers: ExitStack
) -> _Shared:
    """Allocate shared memory and semaphores; ``offers`` withdraws them."""
    memories = []
    for rank, blocks in zip(setup.worker_ranks, seats.blocks, strict=True):
        needed = memory_needed(blocks, batch_copies, marked=seats.acts_on_request)
        memory = offer_memory(needed) if world.nodes[rank] == world.nodes[world.rank] else None
        memories.append(memory)
        if memory is not None:
            offers.callback(memory.withdraw)
    # A process that acquires the semaphore must find the message in shared memory.
    semaphores = create_semaphores(len(memories)) if setup.core_ranks and None not in memories else []
    for each in semaphores:
        offers.callback(each.unlink)
    return _Shared(memories, semaphores)


def _seat_offer(
    setup: MatchSetup, seats: SeatOffers, batch_copies: Sequence[int], shared: _Shared, seat: int
) -> SeatOffer:
    memory = shared.memories[seat]
    return SeatOffer(
        match=setup.match.index,
        seat=seat,
        seats=len(setup.worker_ranks),
        entities=seats.entities[seat],
        copies=sum(batch_copies),
        batches=len(batch_copies),
        same_step=seats.same_step,
        turn_based=seats.turn_based,
        memory=None if memory is None else memory.name,
        semaphores=shared.semaphores[seat].names if shared.semaphores else None,
        acts_on_request=seats.acts_on_request,
    )
