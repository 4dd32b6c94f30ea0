//! Checksums of blocks that have arrived. This file owns `Unchecked` → `Confirming`.
//!
//! The thread that drives checks a bounded number of bytes in each drive, so that neither polls nor heartbeats of
//! other lanes wait.

use std::task::Poll;
use std::time::Instant;

use super::Receives;
use super::state::{Stage, State};
use crate::kv::checksum::{DRIVE_BYTES_MAX, PASS_BYTES, Sum};
use crate::kv::layout::Extent;
use crate::kv::pool::Pool;
use crate::kv::verdict::{BlockVerdict, Verdicts};

/// Progress of checking a transfer, layer by layer.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// Layer and position of the next block to look at.
    next: (u32, u32),
    /// Number of the peer's checksums used before that block.
    sums: usize,
    /// Sum in progress, of that block.
    sum: Sum,
    /// Layer and position of each corrupt block, in ascending order.
    corrupt: Vec<(u32, u32)>,
}

impl Checked {
    /// Whether all blocks of a layer were checked.
    pub(super) fn has_layer(&self, layer: u32) -> bool {
        layer < self.next.0
    }

    /// Whether a block was checked, or skipped because it is not wanted.
    fn has(&self, layer: u32, place: u32) -> bool {
        (layer, place) < self.next
    }

    /// Whether the checksum of a block did not match.
    pub(super) fn is_corrupt(&self, layer: u32, place: u32) -> bool {
        // Blocks are checked in ascending order, so the list is sorted.
        self.corrupt.binary_search(&(layer, place)).is_ok()
    }
}

impl Receives {
    /// Checks blocks that have arrived, for at most [`DRIVE_BYTES_MAX`] bytes. Returns whether there is more to do at
    /// once.
    pub(super) fn check(&mut self, now: Instant) -> bool {
        if !self.checksums {
            return false;
        }
        let (mut left, mut any, first) = (DRIVE_BYTES_MAX, false, self.check_next);
        for step in 0..self.grants.len() {
            let at = (first + step) % self.grants.len();
            let Some(state) = &mut self.grants[at] else { continue };
            let before = left;
            state.check(&self.pool, &mut self.scratch, &mut left);
            any |= left < before;
            let layers = self.pool.layout().layers();
            if matches!(state.stage, Stage::Unchecked(_)) && state.checked.next.0 >= layers {
                any = true;
                let verdicts = state.verdicts(self.pool.layout());
                state.confirm(verdicts, now);
                if self.link.ended.is_some() {
                    // Only the confirmation to the peer is missing, and no peer is left to receive it.
                    state.end_well();
                }
            }
            if left == 0 {
                // The next drive begins with the next slot. Otherwise a slot that is granted again quickly would keep
                // the others from being checked.
                self.check_next = at + 1;
                break;
            }
        }
        self.unchecked = (left == 0).then_some(now);
        any
    }
}

impl State {
    /// Checks the layers of one transfer that have arrived, until `left` bytes are used up.
    fn check(&mut self, pool: &Pool, scratch: &mut [u8], left: &mut u64) {
        let layers = pool.layout().layers();
        while *left > 0 && self.checked.next.0 < layers {
            let (layer, place) = self.checked.next;
            if !self.has_arrived(layer) {
                return;
            }
            if place as usize >= self.hold.blocks().len() {
                self.checked.next = (layer + 1, 0);
                continue;
            }
            let wanted = self.wants(layer, place);
            if wanted {
                let Some(told) = self.sums.get(self.checked.sums) else { return };
                let Some(plan) = self.begin.as_ref().and_then(|begun| begun.plan.as_ref()) else { return };
                let pieces = plan.pieces(layer, place).map(|(_, offset, len)| Extent { offset, len });
                let Poll::Ready(sum) = self.checked.sum.add(pool, pieces, scratch, left) else {
                    return;
                };
                if !sum.is_ok_and(|sum| sum == *told) {
                    self.checked.corrupt.push((layer, place));
                }
            }
            // The source of a pull sends the sums of all offered blocks; a push sends only those of wanted blocks.
            self.checked.sums += usize::from(wanted || self.pulls());
            self.checked.next.1 += 1;
            *left = left.saturating_sub(PASS_BYTES);
        }
    }

    /// Whether all writes of a layer have arrived, by the stage.
    fn has_arrived(&self, layer: u32) -> bool {
        match self.stage {
            Stage::Unchecked(_) => true,
            Stage::Filling | Stage::Revoking(_) => self.has_layer(layer),
            Stage::Confirming(..) | Stage::Ended(_) => false,
        }
    }

    /// Verdicts from the blocks that were checked; blocks that were not checked count as missing.
    pub(super) fn verdicts_checked(&self, layers: u32) -> Verdicts {
        let mut verdicts = Verdicts::new(layers, self.hold.list(), BlockVerdict::Valid);
        for (layer, place) in self.parts(layers).filter(|(layer, place)| !self.checked.has(*layer, *place)) {
            verdicts.set(layer, place as usize, BlockVerdict::Missing);
        }
        for &(layer, place) in &self.checked.corrupt {
            verdicts.set(layer, place as usize, BlockVerdict::Corrupt);
        }
        verdicts
    }
}
