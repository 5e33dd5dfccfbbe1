"""Memory that all members of a communicator have mapped."""

from arena.comms.mpi import MPI
from arena.system.shared_memory import MemoryName, find_memory, offer_memory


def shared_memory(comm: MPI.Comm, size: int) -> memoryview | None:
    """Return so many zero bytes; None where the members have no memory in common. All call it."""
    offered = offer_memory(size) if comm.rank == 0 else None
    try:
        name: MemoryName | None = comm.bcast(None if offered is None else offered.name)
        if offered is not None:
            memory: memoryview | None = offered.view
        else:
            memory = None if name is None else find_memory(name, size)
        everyone = comm.allreduce(memory is not None, MPI.LAND)
    finally:
        if offered is not None:
            offered.withdraw()
    return memory if everyone else None
