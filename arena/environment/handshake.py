"""The handshake of an environment process with the workers of its match, which opens the match's channel."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from arena.common.waiting import Waiter
from arena.comms import Mailbox, MatchChannel, World, agree_on_time_slice, create_semaphores, memory_needed
from arena.envs.interface import EntitySpaces
from arena.plan.layout import Match
from arena.protocol.seat import SeatAnswer, SeatOffer
from arena.protocol.wire import Block
from arena.system.shared_memory import offer_memory


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


def connect_seats(
    world: World,
    mailbox: Mailbox,
    waiter: Waiter,
    match: Match,
    worker_ranks: Sequence[int],
    seats: SeatOffers,
    *,
    in_order: bool,
    core_ranks: Sequence[int],
) -> tuple[MatchChannel, list[SeatAnswer]]:
    """Offer each worker its seat, with shared memory if possible, and wait for the replies.

    Args:
      world: all ranks.
      mailbox: mailbox of this rank.
      waiter: bounded waits of this rank.
      match: the match of the seats.
      worker_ranks: rank of each seat.
      seats: description of the seats.
      in_order: whether to accept batches in their order instead of that of their arrival.
      core_ranks: all environment processes pinned to this one's core, if any.

    Returns:
      The channel to the workers, and the reply of each of them.
    """
    batch_copies = [s.stop - s.start for s in seats.slices]
    # However this ends, no offer is left open: the other ends have mapped the memory then, or never will.
    with ExitStack() as offers:
        memories = []
        for rank, blocks in zip(worker_ranks, seats.blocks, strict=True):
            near = world.nodes[rank] == world.nodes[world.rank]
            needed = memory_needed(blocks, batch_copies, marked=seats.acts_on_request)
            memory = offer_memory(needed) if near else None
            memories.append(memory)
            if memory is not None:
                offers.callback(memory.withdraw)
        # A process that acquires the semaphore must find the message.
        semaphores = create_semaphores(len(worker_ranks)) if core_ranks and None not in memories else []
        for each in semaphores:
            offers.callback(each.unlink)
        time_slice = agree_on_time_slice(mailbox, waiter, world.rank, core_ranks) if core_ranks else None
        for i, (rank, entities, memory) in enumerate(zip(worker_ranks, seats.entities, memories, strict=True)):
            offer = SeatOffer(
                match=match.index,
                seat=i,
                seats=len(worker_ranks),
                entities=entities,
                copies=sum(batch_copies),
                batches=len(batch_copies),
                same_step=seats.same_step,
                turn_based=seats.turn_based,
                memory=None if memory is None else memory.name,
                semaphores=semaphores[i].names if semaphores else None,
                acts_on_request=seats.acts_on_request,
            )
            mailbox.deliver(rank, offer, i)
        answers: list[SeatAnswer] = [
            mailbox.collect_reply(rank, waiter, "the answer to a seat's offer", i)
            for i, rank in enumerate(worker_ranks)
        ]
    channel = MatchChannel(
        world,
        worker_ranks,
        seats.blocks,
        batch_copies,
        waiter,
        [
            None if memory is None or not answer.has_memory else memory.view
            for memory, answer in zip(memories, answers, strict=True)
        ],
        in_order=in_order,
        semaphores=semaphores,
        time_slice=time_slice if semaphores else None,
        marked=seats.acts_on_request,
    )
    return channel, answers
