//! Staging memory of a link: slots in which short pieces are packed at prefill, and from which decode unpacks them.
//!
//! Prefill chooses the slots of decode for each push, and uses one again once decode has said that it is unpacked.

use std::sync::Arc;

use rdma_core::error::{RangeError, RegisterError};
use rdma_core::memory::CacheHint;
use rdma_core::{Access, AttachedRange, Memory, Region, RemoteMemory};

use super::layout::Side;
use super::plan::Run;
use super::pool::Pool;
use crate::engine::Engine;
use crate::link::AttachedOnRails;

/// Bytes of a slot: 64 KiB, so that a slot that is packed is still in a core's cache when it is sent.
pub(super) const SLOT_BYTES: u32 = 64 * 1024;
/// Slots of a link at either end: 32, which is 2 MiB, so that several pushes have some.
pub(super) const SLOTS: u32 = 32;

/// A slot is read again at once, so it stays in the caches.
pub(super) const KEPT: CacheHint = CacheHint::Cached;

/// Staging memory of one end of a link. A clone is another handle to the same memory.
#[derive(Debug, Clone)]
pub(super) struct Staging {
    region: Region,
    /// The memory, as the peer names it on the rail of the link.
    remote: RemoteMemory,
    attached: Arc<AttachedOnRails>,
    rail: usize,
}

impl Staging {
    /// Registers staging memory: of prefill, or of decode, into which prefill writes.
    pub(super) fn register(engine: &Engine, at_decode: bool) -> Result<Region, RegisterError> {
        let access = if at_decode { Access::LOCAL_WRITE | Access::REMOTE_WRITE } else { Access::LOCAL_WRITE };
        let memory = Memory::allocate((SLOTS * SLOT_BYTES) as usize)?;
        engine.register(memory, access).map_err(|refused| refused.error)
    }

    /// The staging memory of a link on a rail, where the peer names it so.
    pub(super) fn new(
        (region, remote): (Region, RemoteMemory),
        attached: AttachedOnRails,
        rail: usize,
    ) -> Self {
        Self { region, remote, attached: Arc::new(attached), rail }
    }

    pub(super) fn remote(&self) -> RemoteMemory {
        self.remote
    }

    pub(super) fn attached(&self) -> AttachedOnRails {
        *self.attached
    }

    /// The first bytes of a slot.
    pub(super) fn range(&self, slot: u32, len: u64) -> AttachedRange {
        self.attached.on(self.rail).range(start(slot), len as usize)
    }

    /// Packs the pieces of the runs, which lie in the pool of the source, into a slot.
    pub(super) fn pack(&self, pool: &Pool, slot: u32, runs: &[Run]) -> Result<(), RangeError> {
        for (place, at, len) in rows(runs, Side::Source) {
            let (region, offset) = pool.place(place)?;
            region.copy_to_hinted(offset, len as usize, (&self.region, start(slot) + at), KEPT)?;
        }
        Ok(())
    }

    /// Unpacks a slot: the pieces of the runs go to the pool of the destination.
    pub(super) fn unpack(&self, pool: &Pool, slot: u32, runs: &[Run]) -> Result<(), RangeError> {
        for (place, at, len) in rows(runs, Side::Destination) {
            let (region, offset) = pool.place(place)?;
            self.region.copy_to_hinted(start(slot) + at, len as usize, (region, offset), KEPT)?;
        }
        Ok(())
    }
}

/// Offset in the pool of one side, offset in the slot and length of each piece. Where runs lie side by side, as heads
/// of several tokens do, their pieces take turns, so that the pool is gone through in order.
fn rows(runs: &[Run], side: Side) -> impl Iterator<Item = (u64, usize, u64)> + '_ {
    let of = move |run: &Run| match side {
        Side::Source => (run.source, run.source_step),
        Side::Destination => (run.destination, run.destination_step),
    };
    let beside = move |one: &Run, next: &Run| {
        let ((at, step), (then, other)) = (of(one), of(next));
        (one.count, one.len, step) == (next.count, next.len, other) && then == at + one.len
    };
    let mut first = 0;
    runs.chunk_by(beside).flat_map(move |group| {
        let (begin, (count, bytes)) = (first, group.first().map_or((0, 0), |run| (run.count, run.bytes())));
        first += bytes as usize * group.len();
        (0..u64::from(count)).flat_map(move |at| {
            group.iter().enumerate().map(move |(n, run)| {
                let (start, step) = of(run);
                (start + at * step, begin + n * bytes as usize + (at * run.len) as usize, run.len)
            })
        })
    })
}

fn start(slot: u32) -> usize {
    (slot % SLOTS) as usize * SLOT_BYTES as usize
}

/// Some slots of decode, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Slots(pub(super) u32);

impl Slots {
    pub(super) const ALL: Self = Self(u32::MAX >> (u32::BITS - SLOTS));

    /// Takes at most `most` of these slots, and at most one in `share` of those that are left; `None` when there are
    /// none.
    pub(super) fn take(&mut self, most: u32, share: u32) -> Option<Self> {
        let (mut taken, most) = (Self(0), most.min(self.count().div_ceil(share)));
        while taken.count() < most {
            let lowest = self.0 & self.0.wrapping_neg();
            self.0 &= !lowest;
            taken.0 |= lowest;
        }
        (taken.0 != 0).then_some(taken)
    }

    pub(super) fn give_back(&mut self, slots: Self) {
        self.0 |= slots.0;
    }

    pub(super) fn count(self) -> u32 {
        self.0.count_ones()
    }

    pub(super) fn has(self, others: Self) -> bool {
        others.0 & !self.0 == 0
    }

    /// The slot of the packed write with this number in its push: each slot in turn.
    pub(super) fn of(self, number: u32) -> Option<u32> {
        let turn = number.checked_rem(self.count())?;
        let left = (0..turn).fold(self.0, |bits, _| bits & (bits - 1));
        Some(left.trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_take_turns() {
        let slots = Slots(0b1011_0000);
        let turns: Vec<_> = (0..7).map(|number| slots.of(number).unwrap()).collect();
        assert_eq!(turns, [4, 5, 7, 4, 5, 7, 4]);
        assert_eq!(Slots(0).of(0), None);
    }

    #[test]
    fn several_pushes_have_slots_at_once_and_the_next_waits() {
        let mut free = Slots::ALL;
        let taken: Vec<_> = std::iter::from_fn(|| free.take(8, 2)).collect();
        let counts: Vec<_> = taken.iter().map(|slots| slots.count()).collect();
        assert_eq!(counts, [8, 8, 8, 4, 2, 1, 1]);
        assert_eq!(taken.iter().fold(0, |all, slots| all ^ slots.0), u32::MAX);
        free.give_back(taken[3]);
        assert!(taken[3].has(free) && !taken[0].has(free));
        assert_eq!(free.take(8, 2).map(Slots::count), Some(2));
        let mut free = Slots::ALL;
        assert_eq!(std::iter::from_fn(|| free.take(2, 8)).count(), 20, "pushes that go layer by layer");
    }
}
