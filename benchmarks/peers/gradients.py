"""torch's own averaging over gloo: ``python -m benchmarks.peers.gradients PARAMETERS WORKERS REPEATS``.

``DistributedDataParallel`` reduces in buckets while it goes backward; to measure the reduction alone, the time of the
same backward pass without it (``no_sync``) is taken off.
"""

import os
import tempfile
import time

from benchmarks.peers.output import run_as_program, write_figures


def _work(rank: int, workers: int, parameters: int, repeats: int, place: str) -> None:
    import torch
    import torch.distributed as dist

    from benchmarks.peers.networks import network

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=workers)
    model = network(parameters)

    class Total(torch.nn.Module):
        """Has a gradient of ones everywhere and next to nothing to compute."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, _: torch.Tensor) -> torch.Tensor:
            return torch.stack([parameter.sum() for parameter in self.model.parameters()]).sum()

    wrapped = torch.nn.parallel.DistributedDataParallel(Total())
    nothing = torch.zeros(1)
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(repeats + 3):
        for reduce in (True, False):
            dist.barrier()
            if reduce:
                total = wrapped(nothing)
            else:
                with wrapped.no_sync():
                    total = wrapped(nothing)
            began = time.perf_counter()
            if reduce:
                total.backward()
            else:
                with wrapped.no_sync():
                    total.backward()
            times[reduce].append(time.perf_counter() - began)
            model.zero_grad(set_to_none=False)
    if rank == 0:
        middle = {kind: sorted(found[3:])[repeats // 2] for kind, found in times.items()}
        write_figures(us=(middle[True] - middle[False]) * 1e6, **{"us with backward": middle[True] * 1e6})
    dist.destroy_process_group()


def main(parameters: str, workers: str, repeats: str) -> None:
    """Start the workers and wait for them."""
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as place:
        arguments = (int(workers), int(parameters), int(repeats), os.path.join(place, "store"))
        mp.spawn(_work, args=arguments, nprocs=int(workers))


if __name__ == "__main__":
    run_as_program(main)
