//! The rest of a window: room for pieces of longer operations, which the others read where they lie, and how far its rank has come.
//!
//! Who fills which unit when, so that nothing is overwritten before it was read, is the collectives' business.

use std::sync::atomic::{AtomicU64, Ordering};

use rdma_core::memory::{CacheHint, InPlace};

use super::{HostGroup, LINE_BYTES};

/// Bytes of the longest piece: so few that all that a rank works on at a time stays in the second cache.
pub(crate) const UNIT_BYTES: usize = 32 * 1024;
const GENERATIONS: usize = 2;

/// Where they are in each window.
#[derive(Debug)]
pub(super) struct Units {
    /// Of the line that tells how far the owner has come.
    at: usize,
    ranks: usize,
    /// What all ranks have told in operations that have ended.
    told: AtomicU64,
}

impl Units {
    pub(super) fn new(at: usize, ranks: usize) -> Self {
        Self { at, ranks, told: AtomicU64::new(0) }
    }

    pub(super) const fn bytes(ranks: usize) -> usize {
        LINE_BYTES + GENERATIONS * ranks * UNIT_BYTES
    }

    fn unit(&self, round: u64, unit: u32) -> usize {
        let generation = (round % GENERATIONS as u64) as usize;
        self.at + LINE_BYTES + (generation * self.ranks + unit as usize) * UNIT_BYTES
    }

    fn mark(&self, mark: u64) -> u64 {
        self.told.load(Ordering::Relaxed).wrapping_add(mark)
    }
}

impl HostGroup {
    /// Writes a unit of this rank's for round `round` of an operation, from byte `at` on.
    pub(crate) fn fill(&self, (round, unit): (u64, u32), at: usize, bytes: &[u8]) {
        let written = self.own.copy_in(self.units.unit(round, unit) + at, bytes);
        debug_assert!(written.is_ok(), "pieces are no longer than units");
    }

    /// Reads what rank `from` has in a unit, a part of what is expected so.
    pub(crate) fn fetch(
        &self,
        from: u32,
        (round, unit): (u64, u32),
        at: usize,
        (out, expect): (&mut [u8], CacheHint),
    ) {
        let Some(Some(peer)) = self.peers.get(from as usize) else { return };
        let read = peer.copy_out_hinted(self.units.unit(round, unit) + at, out, expect);
        debug_assert!(read.is_ok(), "pieces are no longer than units");
    }

    /// Has `bytes` of it worked on where they lie.
    pub(crate) fn work_on_unit<W: InPlace>(
        &self,
        from: u32,
        (round, unit): (u64, u32),
        (at, bytes): (usize, usize),
        work: &mut W,
    ) {
        let Some(Some(peer)) = self.peers.get(from as usize) else { return };
        let done = peer.run(self.units.unit(round, unit) + at, bytes, work);
        debug_assert!(done.is_ok(), "pieces are no longer than units");
    }

    /// Tells the others that this rank has come as far as `mark` in an operation.
    pub(crate) fn tell(&self, mark: u64) {
        let told = self.own.store(self.units.at, self.units.mark(mark));
        debug_assert!(told.is_ok(), "there is a line for it");
    }

    /// Whether rank `of` has told that it has come as far.
    pub(crate) fn has_told(&self, of: u32, mark: u64) -> bool {
        let Some(Some(peer)) = self.peers.get(of as usize) else { return true };
        let behind = |told: u64| told.wrapping_sub(self.units.mark(mark)).cast_signed() < 0;
        !peer.load(self.units.at).is_ok_and(behind)
    }

    /// The operation has ended, in which no mark is beyond `marks`.
    pub(crate) fn end_pieces(&self, marks: u64) {
        self.units.told.store(self.units.mark(marks), Ordering::Relaxed);
    }
}
