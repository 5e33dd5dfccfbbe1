"""Many matches in plain MPI: ``mpirun -n RANKS python -m benchmarks.ours.many_ranks MATCHES SEATS SECONDS``.

A root that does nothing, then for each match one rank that plays the environment process and one rank for each seat. An
exchange is a message of a few floats each way over persistent requests, waited for inside MPI.
"""

import time

import mpi4py
import numpy as np

mpi4py.rc.thread_level = "funneled"
from mpi4py import MPI  # noqa: E402

from benchmarks.peers.output import run_as_program, write_figures  # noqa: E402

ACTION_BYTES, RECORD_BYTES = 128, 1024
"""Approximate bytes that a seat of Touchdown with 8 copies in 2 batches sends and receives."""


def main(matches: str, seats: str, seconds: str) -> None:
    """Exchange until the time is over; match steps per second are those of all matches together."""
    comm, per_match = MPI.COMM_WORLD, 1 + int(seats)
    place = comm.rank - 1
    taken = 0
    comm.Barrier()
    first = time.time()
    start = time.perf_counter()
    if 0 <= place < int(matches) * per_match:
        first = 1 + place // per_match * per_match
        if place % per_match == 0:
            others = range(first + 1, first + per_match)
            receives = [comm.Recv_init(np.zeros(ACTION_BYTES, np.uint8), rank) for rank in others]
            records = [np.zeros(RECORD_BYTES, np.uint8) for _ in others]
            sends = [comm.Send_init(record, rank) for record, rank in zip(records, others, strict=True)]
            going = True
            while going:
                MPI.Prequest.Startall(receives)
                MPI.Request.Waitall(receives)
                going = time.perf_counter() - start < float(seconds)
                for record in records:
                    record[0] = going
                MPI.Prequest.Startall(sends)
                MPI.Request.Waitall(sends)
                taken += 1
        else:
            record = np.ones(RECORD_BYTES, np.uint8)
            receive, send = comm.Recv_init(record, first), comm.Send_init(np.zeros(ACTION_BYTES, np.uint8), first)
            while record[0]:
                receive.Start()
                send.Start()
                receive.Wait()
                send.Wait()
    total = comm.reduce(taken)  # the root waits here for all matches
    elapsed = time.perf_counter() - start
    if comm.rank == 0:
        assert total is not None
        write_figures(**{"exchanges/s": total / elapsed, "first at": first})


if __name__ == "__main__":
    run_as_program(main)
