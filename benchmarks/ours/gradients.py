"""Averages a gradient in one of three ways: ``mpirun -n W python -m benchmarks.ours.gradients WAY PARAMETERS REPEATS``.

Ways: ``flat``, one Allreduce of all bytes, the limit; ``tensors``, one for each tensor; ``arena``, as a policy does it,
by ``average_gradients``.
"""

import os
import time
from functools import partial

import mpi4py
import numpy as np
import torch
from torch import nn

mpi4py.rc.thread_level = "funneled"
from mpi4py import MPI  # noqa: E402

from arena.common.waiting import Waiter, usual_waits  # noqa: E402
from arena.comms import GroupChannel  # noqa: E402
from arena.worker.group import Group  # noqa: E402
from benchmarks.peers.networks import network  # noqa: E402
from benchmarks.peers.output import run_as_program, write_figures  # noqa: E402


def _averager(way: str, comm: MPI.Comm, model: nn.Module) -> partial:
    gradients = [parameter.grad.numpy() for parameter in model.parameters() if parameter.grad is not None]
    if way == "arena":
        waits = usual_waits(len(os.sched_getaffinity(0)) / comm.size)
        make_progress = partial(comm.Iprobe, MPI.ANY_SOURCE, 1)
        waiter = Waiter(**waits._asdict(), warn_after=60, abort_after=600, on_warn=print, check=make_progress)
        return partial(Group(GroupChannel(comm.Dup(), waiter), lambda _: None).average_gradients, model)
    if way == "flat":
        flat = np.concatenate([gradient.ravel() for gradient in gradients])
        return partial(comm.Allreduce, MPI.IN_PLACE, flat)

    def each() -> None:
        for gradient in gradients:
            comm.Allreduce(MPI.IN_PLACE, gradient)
            gradient /= comm.size

    return partial(each)


def main(way: str, parameters: str, repeats: str) -> None:
    """Warm up, then measure each call on its own; the median of the first worker counts."""
    torch.set_num_threads(1)
    comm = MPI.COMM_WORLD
    model = network(int(parameters))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    average = _averager(way, comm, model)
    times = []
    for _ in range(int(repeats) + 3):
        comm.Barrier()
        began = time.perf_counter()
        average()
        times.append(time.perf_counter() - began)
    if comm.rank == 0:
        write_figures(us=float(np.median(times[3:])) * 1e6)


if __name__ == "__main__":
    run_as_program(main)
