//! What works on a peer's memory where it lies.

use std::ops::Range;

use rdma_core::Access;
use rdma_core::memory::InPlace;

/// Changes bytes where they lie, each by where it is in all of them.
pub struct Change {
    by: u8,
    done: usize,
    /// Whether ranges came in order, and none was long.
    pub right: bool,
}

impl Change {
    pub fn by(by: u8) -> Self {
        Self { by, done: 0, right: true }
    }

    /// How many it has changed.
    pub fn done(&self) -> usize {
        self.done
    }

    /// What a byte is that was changed.
    pub fn of(&self, at: usize, byte: u8) -> u8 {
        byte ^ self.by ^ (at % 251) as u8
    }
}

// SAFETY: bytes at `at` are accessed one by one, by volatile accesses.
unsafe impl InPlace for Change {
    const NEEDS: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

    unsafe fn run(&mut self, at: *mut u8, range: Range<usize>) {
        let len = range.len();
        self.right &= range.start == self.done && (1..=256 << 10).contains(&len);
        for byte in range {
            // SAFETY: it is one of them.
            unsafe {
                let at = at.add(byte - self.done);
                at.write_volatile(self.of(byte, at.read_volatile()));
            }
        }
        self.done += len;
    }
}
