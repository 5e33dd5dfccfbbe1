"""How an environment process offers the seats of its match, and gets the way to the workers that take them."""

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
    """What the seats of a match are like.

    Attributes:
      entities: of each seat.
      blocks: of each seat.
      slices: the copies of each batch.
      same_step: whether finished episodes restart within the same step.
      turn_based: whether entities may skip steps.
      acts_on_request: whether each entity of each copy acts when it asks to.
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
    """Offer each worker its seat, with memory for both ends where that is possible, and wait for the answers.

    Args:
      world: all ranks.
      mailbox: of this rank.
      waiter: how it waits.
      match: whose seats they are.
      worker_ranks: who is to take them.
      seats: what they are like.
      in_order: whether to take batches in their order, not as they come.
      core_ranks: of all environment processes that keep to this one's core, if they do.

    Returns:
      The way to the workers, and what each of them has answered.
    """
    batch_copies = [s.stop - s.start for s in seats.slices]
    # However this ends, nothing that was offered stays on offer: the other ends have it then, or never will.
    with ExitStack() as offers:
        memories = []
        for rank, blocks in zip(worker_ranks, seats.blocks, strict=True):
            near = world.nodes[rank] == world.nodes[world.rank]
            needed = memory_needed(blocks, batch_copies, marked=seats.acts_on_request)
            memory = offer_memory(needed) if near else None
            memories.append(memory)
            if memory is not None:
                offers.callback(memory.withdraw)
        # A process that acquires the semaphore must find the message then.
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
