#!/usr/bin/env python3
"""Blocks between two processes with NIXL (UCX): prints GB/s, the median of some runs, of the fastest way that it has here.

256 MiB as 4096 blocks of 64 KiB, each from somewhere to somewhere else, written over shared memory, with no thread of
NIXL's own: those spin, and take cores from what is measured.
"""

import multiprocessing
import os
import statistics
import time

import kv_blocks as blocks
import numpy
from nixl_cu12 import nixl_agent, nixl_agent_config


def agent(name):
    made = nixl_agent(name, nixl_agent_config(backends=[], enable_prog_thread=False))
    made.create_backend("UCX", {"ucx_error_handling_mode": "none"})
    return made


def target(pipe):
    memory = blocks.Memory(2)
    here = agent("target")
    here.register_memory([(memory.address, blocks.BYTES, 0, "")], "DRAM")
    pipe.send((here.get_agent_metadata(), memory.address))
    here.add_remote_agent(pipe.recv())
    # Its thread moves things along.
    while not pipe.poll(0):
        here.get_new_notifs()
    pipe.recv()
    pipe.send(memory.is_written())
    os._exit(0)


def main():
    os.environ.setdefault("UCX_TLS", "posix,self")
    os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    context.Process(target=target, args=(other,), daemon=True).start()
    memory = blocks.Memory(1)
    here = agent("initiator")
    here.register_memory([(memory.address, blocks.BYTES, 0, "")], "DRAM")
    metadata, remote = pipe.recv()
    peer = here.add_remote_agent(metadata)
    pipe.send(here.get_agent_metadata())

    def prepared(name, base):
        rows = [[base + at * blocks.BLOCK, blocks.BLOCK, 0] for at in range(blocks.COUNT)]
        return here.prep_xfer_dlist(name, numpy.array(rows, dtype=numpy.uint64), "DRAM")

    local, there = prepared("NIXL_INIT_AGENT", memory.address), prepared(peer, remote)
    order = [numpy.array(order, dtype=numpy.int32) for order in blocks.orders()]
    seconds = []
    for _ in range(blocks.RUNS):
        handle = here.make_prepped_xfer("WRITE", local, order[0], there, order[1])
        begin = time.monotonic()
        state = here.transfer(handle)
        while state == "PROC":
            state = here.check_xfer_state(handle)
        seconds.append(time.monotonic() - begin)
        assert state == "DONE", state
        handle.release()
    pipe.send("end")
    assert pipe.recv(), "not every block was written"
    print(blocks.BYTES / statistics.median(seconds[blocks.WARM_UP:]) / 1e9, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
