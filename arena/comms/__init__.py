"""The only room that uses MPI: the world, the mailbox to the root, match channels, experience channels, and groups.

Each kind of traffic has a communicator of its own, so that no message can be taken for another. Every wait is bounded
(``arena.common.waiting``). Collectives are entered through a rendezvous, in shared memory or by a small non-blocking
reduction: once all members have arrived, they are about to call the same collective, which then waits only for finished
members; these poll the rendezvous with every exchange.
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
