//! An in-place operation on a peer's memory.

use std::ops::Range;

use rdma_core::Access;
use rdma_core::memory::InPlace;

/// Changes each byte by a function of its position.
pub struct Change {
    by: u8,
    done: usize,
    /// Whether the ranges came in order, and none was too long.
    pub right: bool,
}

impl Change {
    pub fn by(by: u8) -> Self {
        Self { by, done: 0, right: true }
    }

    /// Bytes changed so far.
    pub fn done(&self) -> usize {
        self.done
    }

    /// The changed value of a byte.
    pub fn of(&self, at: usize, byte: u8) -> u8 {
        byte ^ self.by ^ (at % 251) as u8
    }
}

// SAFETY: the operation accesses only the given bytes, one at a time and by volatile accesses, so it makes no
// reference to them.
unsafe impl InPlace for Change {
    const NEEDS: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

    unsafe fn run(&mut self, at: *mut u8, range: Range<usize>) {
        let len = range.len();
        self.right &= range.start == self.done && (1..=256 << 10).contains(&len);
        for byte in range {
            // SAFETY: `byte` is in the given range, so its address may be accessed.
            unsafe {
                let at = at.add(byte - self.done);
                at.write_volatile(self.of(byte, at.read_volatile()));
            }
        }
        self.done += len;
    }
}
