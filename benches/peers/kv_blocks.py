"""What the peers of a KV transfer move: the list of `benches/src/blocks.rs`."""

import mmap

import numpy

BYTES, BLOCK = 256 << 20, 64 << 10
COUNT = BYTES // BLOCK
RUNS, WARM_UP = 12, 3


class Memory:
    """All its bytes are `value`."""

    def __init__(self, value):
        self.map = mmap.mmap(-1, BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.bytes = numpy.frombuffer(self.map, dtype=numpy.uint8)
        self.bytes[:] = value
        self.address = self.bytes.ctypes.data

    def is_written(self):
        """Whether all of it came from a memory whose value is 1."""
        return bool((self.bytes == 1).all())


def permuted(at, odd):
    half = (COUNT.bit_length() - 1) // 2
    at = at * odd & (COUNT - 1)
    return (at ^ at >> half) * odd & (COUNT - 1)


def orders():
    """Which blocks, and where they go."""
    return [[permuted(at, odd) for at in range(COUNT)] for odd in (0x9E3779B1, 0x85EBCA77)]
