//! The plan with which a test runs, once the flags have been put together.

use super::test::Test;

/// The largest message of `-a`, 2^23.
pub const ALL_SIZES_MAX: u64 = 1 << 23;
/// Sizes above this one are signalled one by one unless `-Q` says otherwise, as perftest does.
const MODERATED_SIZE_MAX: u64 = 8192;

/// A test's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The test.
    pub test: Test,
    /// Bytes of a message; the largest of them with `-a`.
    pub size: u64,
    /// True for every power of two up to [`ALL_SIZES_MAX`].
    pub all: bool,
    /// Messages on each queue pair.
    pub iters: u32,
    /// Queue pairs.
    pub queue_pairs: u16,
    /// Requests each send queue holds.
    pub tx_depth: u32,
    /// A completion every so many messages.
    pub cq_moderation: u32,
    /// Messages of at most so many bytes are sent inline.
    pub inline_bytes: u32,
    /// Whether that is a default, which gives way to a device's limit.
    pub inline_may_shrink: bool,
    /// Reads that a queue pair may have outstanding; none was named: as many as both devices take.
    pub reads: Option<u8>,
    /// Receives that each queue pair of a test of sends holds.
    pub rx_depth: u32,
}

impl Plan {
    /// The sizes to run, smallest first.
    pub fn sizes(&self) -> impl Iterator<Item = u64> + use<> {
        let first = if self.all { 2 } else { self.size };
        let last = self.size;
        std::iter::successors(Some(first), |size| size.checked_mul(2)).take_while(move |&size| size <= last)
    }

    /// Messages over all queue pairs.
    pub fn messages(&self) -> u64 {
        u64::from(self.iters) * u64::from(self.queue_pairs)
    }

    /// Whether messages of `size` bytes are sent inline.
    pub fn is_inline(&self, size: u64) -> bool {
        size <= u64::from(self.inline_bytes)
    }
}

/// perftest's moderation: large messages are not moderated unasked, and none beyond the depth.
pub(super) fn moderation(asked: Option<u32>, size: u64, all: bool, tx_depth: u32) -> u32 {
    let unasked = if size > MODERATED_SIZE_MAX && !all { 1 } else { 100 };
    asked.unwrap_or(unasked).min(tx_depth)
}
