"""The same bytes without the arena: ``mpirun -n 1+SEATS python -m benchmarks.ours.raw_exchange PATTERN ENVIRONMENT N``.

Rank 0 is the environment process, each other rank a worker. Patterns: ``persistent`` requests, waiting inside MPI;
``pickled``: rank 0 gathers the actions and broadcasts all observations, as Python objects.
"""

import time

import mpi4py
import numpy as np

mpi4py.rc.thread_level = "funneled"
from mpi4py import MPI  # noqa: E402

from arena.envs.interface import EntitySpaces  # noqa: E402
from arena.protocol.wire import ActionMessage, blocks_of, make_observation_message  # noqa: E402
from benchmarks.peers.games import make  # noqa: E402
from benchmarks.peers.output import run_as_program, write_figures  # noqa: E402


def persistent(comm: MPI.Comm, name: str, exchanges: int) -> None:
    """Exchange the arena's own messages over persistent requests."""
    env = make(name)
    blocks = blocks_of([EntitySpaces("entity", env.observation_space, env.action_space)])
    if comm.rank:
        out, into = ActionMessage(blocks, 1).buffer, make_observation_message(blocks, 1).buffer
        sends, receives = [comm.Send_init(out, 0)], [comm.Recv_init(into, 0)]
        for _ in range(exchanges):
            receives[0].Start()
            sends[0].Start()
            receives[0].Wait()
            sends[0].Wait()
        return
    seats = range(1, comm.size)
    receives = [comm.Recv_init(ActionMessage(blocks, 1).buffer, seat) for seat in seats]
    sends = [comm.Send_init(make_observation_message(blocks, 1).buffer, seat) for seat in seats]
    for _ in range(exchanges):
        MPI.Prequest.Startall(receives)
        MPI.Request.Waitall(receives)
        MPI.Prequest.Startall(sends)
        MPI.Request.Waitall(sends)


def pickled(comm: MPI.Comm, name: str, exchanges: int) -> None:
    """Gather actions and broadcast everything that the environment returned."""
    env = make(name)
    observation, _ = env.reset()
    for _ in range(exchanges):
        actions = comm.gather(1, 0)
        outcome = None
        if comm.rank == 0:
            assert actions is not None
            env.step(actions[1])
            entities = range(1, comm.size)
            outcome = {entity: (observation, 0.0, False, {}) for entity in entities}
        comm.bcast(outcome, 0)


def main(pattern: str, name: str, exchanges: str) -> None:
    """Warm up for a fifth of the exchanges, then measure."""
    comm, count = MPI.COMM_WORLD, int(exchanges)
    exchange = {"persistent": persistent, "pickled": pickled}[pattern]
    exchange(comm, name, count // 5)
    comm.Barrier()
    began = time.perf_counter()
    exchange(comm, name, count)
    elapsed = np.array(time.perf_counter() - began)
    if comm.rank == min(1, comm.size - 1):
        write_figures(**{"us/call": float(elapsed) / count * 1e6})


if __name__ == "__main__":
    run_as_program(main)
