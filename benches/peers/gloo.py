#!/usr/bin/env python3
"""gloo's all-reduce over TCP on the loopback interface: float32, sum, in place.

usage: gloo.py RANKS BYTES ITERATIONS      prints the bus bandwidth in GB/s: the mean over iterations and ranks
"""
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as processes


def run(rank, ranks, path, size, iterations):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=ranks)
    data = torch.ones(size // 4)
    for _ in range(3):
        dist.all_reduce(data)
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(iterations):
        dist.all_reduce(data)
    seconds = torch.tensor([(time.perf_counter() - begin) / iterations], dtype=torch.float64)
    check = torch.full((size // 4,), float(rank + 1))
    dist.all_reduce(check)
    if not torch.all(check == ranks * (ranks + 1) / 2):
        sys.exit("gloo: wrong sums")
    dist.all_reduce(seconds)
    if rank == 0:
        print(size / (seconds.item() / ranks) * 2 * (ranks - 1) / ranks / 1e9)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks, size, iterations = map(int, sys.argv[1:4])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(run, (ranks, os.path.join(folder, "init"), size, iterations), nprocs=ranks)
