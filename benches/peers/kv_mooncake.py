#!/usr/bin/env python3
"""Blocks between two processes with Mooncake's transfer engine over TCP: prints GB/s, the median of some runs.

256 MiB as 4096 blocks of 64 KiB, each from somewhere to somewhere else, in batches of 1024: about 2048 are the most
that its queue takes.
"""

import multiprocessing
import os
import statistics
import time

import kv_blocks as blocks
from mooncake.engine import TransferEngine

BATCH = 1024


def engine(memory):
    made = TransferEngine()
    assert made.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert made.register_memory(memory.address, blocks.BYTES) == 0
    return made


def target(pipe):
    memory = blocks.Memory(2)
    here = engine(memory)
    pipe.send((here.get_rpc_port(), memory.address))
    pipe.recv()
    pipe.send(memory.is_written())
    os._exit(0)


def main():
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    process = context.Process(target=target, args=(other,), daemon=True)
    process.start()
    memory = blocks.Memory(1)
    here = engine(memory)
    port, remote = pipe.recv()
    source, destination = blocks.orders()
    source = [memory.address + at * blocks.BLOCK for at in source]
    destination = [remote + at * blocks.BLOCK for at in destination]
    seconds = []
    for _ in range(blocks.RUNS):
        begin = time.monotonic()
        for at in range(0, blocks.COUNT, BATCH):
            part = slice(at, at + BATCH)
            lengths = [blocks.BLOCK] * BATCH
            peer = f"127.0.0.1:{port}"
            assert here.batch_transfer_sync_write(peer, source[part], destination[part], lengths) == 0
        seconds.append(time.monotonic() - begin)
    pipe.send("end")
    assert pipe.recv(), "not every block was written"
    print(f"\n{blocks.BYTES / statistics.median(seconds[blocks.WARM_UP:]) / 1e9}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
