"""The only room that speaks MPI: the world, the mailbox to the root, the channels of a match, and groups.

Each kind of traffic has a communicator of its own, so that no message can be taken for another. Every wait is
bounded (``arena.waiting``). Collectives are entered through a rendezvous on the group's board, shared memory or a small
non-blocking reduction: once all have posted, they are about to do the same, and the collective waits for finished
members only, which look at the board with every exchange.
"""

from arena.comms.bells import SeatBells, agree_on_turn, hang_up
from arena.comms.group import GroupChannel
from arena.comms.links import memory_needed
from arena.comms.mailbox import Mailbox
from arena.comms.match import MatchChannel, SeatChannel
from arena.comms.world import World

__all__ = [
    "GroupChannel",
    "Mailbox",
    "MatchChannel",
    "SeatBells",
    "SeatChannel",
    "World",
    "agree_on_turn",
    "hang_up",
    "memory_needed",
]
