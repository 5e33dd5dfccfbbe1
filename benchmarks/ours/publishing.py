"""A learner's weights to four workers of its node, beside a broadcast.

``mpirun -n 5 python -m benchmarks.ours.publishing N``: rank 0 publishes N parameters, the others load each version into
tensors of their own. Prints milliseconds, medians.
"""

import sys
import time

import numpy as np
import torch
from mpi4py import MPI

from arena.common.waiting import Waiter
from arena.comms.ring_buffer import RingBuffer, SharedMemoryReceiver, SharedMemorySender, ring_bytes
from arena.group.published import PublishedWeights, VersionHeader
from arena.system.shared_memory import find_memory, offer_memory

TIMES = 15


class Weights:
    """Weights to publish: one tensor."""

    def __init__(self, count: int) -> None:
        self.tensor = torch.zeros(count)

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the tensor."""
        return {"all": self.tensor}

    def load_weights(self, state: dict[str, torch.Tensor]) -> None:
        """Load the tensor."""
        self.tensor.copy_(state["all"])


def main() -> None:
    """Measure, and print on rank 0."""
    comm, count = MPI.COMM_WORLD, int(float(sys.argv[1]))
    torch.set_num_threads(1)
    mine = Weights(count)
    published = PublishedWeights(mine)
    waiter = Waiter(spin=0.0, yielding=1e-3, max_sleep=1e-4, warn_after=60, abort_after=60, on_warn=print)
    size = ring_bytes(published.size, 2)
    offered = offer_memory(size) if comm.rank == 0 else None
    name = comm.bcast(offered.name if offered is not None else None)
    memory = offered.view if offered is not None else find_memory(name, size)
    assert memory is not None
    places = RingBuffer(published.size, 2, memory)
    sender, receiver = SharedMemorySender(places), SharedMemoryReceiver(places)
    ours, theirs = [], []
    flat = np.zeros(count, np.float32)
    for version in range(TIMES):
        mine.tensor += 1
        comm.Barrier()
        began = time.perf_counter()
        place = places.buffers[version % 2]
        if comm.rank == 0:
            published.write(place, VersionHeader(version, 0, False, None))
            sender.post(version)
        else:
            waiter.until(lambda version=version: receiver.posted() > version, lambda: "a version")
            published.load(place)
        comm.Barrier()
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        if comm.rank == 0:
            flat[:] = mine.tensor.numpy()
        comm.Bcast(flat)
        if comm.rank:
            mine.tensor.copy_(torch.from_numpy(flat))
        comm.Barrier()
        theirs.append(time.perf_counter() - began)
    if comm.rank == 0:
        print(f"{np.median(ours[2:]) * 1e3:.2f} {np.median(theirs[2:]) * 1e3:.2f}")


if __name__ == "__main__":
    main()
