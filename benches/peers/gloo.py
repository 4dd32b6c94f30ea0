#!/usr/bin/env python3
"""gloo's all-reduce over TCP on the loopback interface: sum, in place, timed as mpi_collectives.c times that of MPIs.

usage: gloo.py RANKS f32|f16|bf16 MS BYTES,BYTES,...
Prints for each size the bytes, the microseconds of a call in the median batch and in the best, and the elements that were
wrong in another call; or `absent`, if gloo does not add that type.
"""
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def over_ranks(values, how):
    all_values = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(all_values, op=how)
    return all_values.tolist()


def value(rank, count):
    return (rank * 3 + torch.arange(count)) % 11 + 1


def batch(data, calls):
    begin = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(data)
    return (time.perf_counter() - begin) / calls


def measure(rank, ranks, of, seconds, size):
    count = size // torch.empty(0, dtype=of).element_size()
    data = value(rank, count).to(of)
    dist.all_reduce(data)
    right = sum(value(each, count) for each in range(ranks)).to(of)
    [wrong] = over_ranks([int((data != right).sum())], dist.ReduceOp.SUM)
    data.zero_()
    warm = 50 if size <= 65536 else 5 if size <= 4 << 20 else 2
    batch(data, warm)
    dist.barrier()
    [one] = over_ranks([batch(data, warm)], dist.ReduceOp.MAX)
    calls = min(10_000, int(1e-3 / one) + 1)
    times = []
    for _ in range(max(3 if one > 0.2 else 11, min(400, int(seconds / (one * calls))))):
        dist.barrier()
        times.append(batch(data, calls))
    times = sorted(over_ranks(times, dist.ReduceOp.MAX))
    if rank == 0:
        print(size, times[len(times) // 2] * 1e6, times[0] * 1e6, int(wrong), flush=True)


def run(rank, ranks, path, of, seconds, sizes):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=ranks)
    try:
        dist.all_reduce(torch.ones(2, dtype=of))
    except RuntimeError:
        if rank == 0:
            print("absent", flush=True)
        sizes = []
    for size in sizes:
        measure(rank, ranks, of, seconds, size)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks, of, seconds = int(sys.argv[1]), TYPES[sys.argv[2]], float(sys.argv[3]) / 1e3
    sizes = [int(size) for size in sys.argv[4].split(",")]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(run, (ranks, os.path.join(folder, "init"), of, seconds, sizes), nprocs=ranks)
