"""The only room that speaks MPI: the world, the mailbox to the root, the channels of a match, experience, and groups.

Each kind of traffic has a communicator of its own, so that no message can be taken for another. Every wait is
bounded (``arena.common.waiting``). Collectives are entered through a rendezvous, in shared memory or
by a small non-blocking reduction: once all have arrived, they are about to do the same, and the collective waits for
finished members only, which look at the rendezvous with every exchange.
"""

from arena.comms.channels import MatchChannel, SeatChannel
from arena.comms.experience import LearnerChannel, SamplerChannel, Versions
from arena.comms.group import GroupChannel, SingleMember
from arena.comms.mailbox import Mailbox
from arena.comms.semaphores import SeatSemaphores, create_semaphores
from arena.comms.time_slice import agree_on_time_slice
from arena.comms.transport import memory_needed
from arena.comms.world import World

__all__ = [
    "GroupChannel",
    "LearnerChannel",
    "Mailbox",
    "MatchChannel",
    "SamplerChannel",
    "SeatChannel",
    "SeatSemaphores",
    "SingleMember",
    "Versions",
    "World",
    "agree_on_time_slice",
    "create_semaphores",
    "memory_needed",
]
