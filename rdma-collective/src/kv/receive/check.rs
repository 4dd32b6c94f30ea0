//! Checksums of what has arrived, checked by whoever drives: a little at a time, so that neither those who poll nor the
//! beats of other lanes wait for it.

use std::task::Poll;
use std::time::Instant;

use super::Receives;
use super::state::{Stage, State};
use crate::kv::checksum::{Sum, TURN_BYTES_MAX};
use crate::kv::pool::Pool;
use crate::kv::verdict::{BlockVerdict, Verdicts};

/// What it costs to look at a block that is not to arrive, in bytes that could be summed meanwhile.
const PASS_BYTES: u64 = 64;

/// How far the blocks of a grant were checked, layer by layer.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// Layer and place of the next block to look at.
    next: (u32, u32),
    /// Checksums of those before it.
    sums: usize,
    /// Of the next block.
    sum: Sum,
    /// Layer and place of those whose checksum does not hold.
    corrupt: Vec<(u32, u32)>,
}

impl Checked {
    /// Whether all of a layer was checked.
    pub(super) fn has_layer(&self, layer: u32) -> bool {
        layer < self.next.0
    }

    /// Whether a block was checked, or passed by since it is not to arrive.
    fn has(&self, layer: u32, place: u32) -> bool {
        (layer, place) < self.next
    }

    /// Whether a block was checked in vain.
    pub(super) fn is_corrupt(&self, layer: u32, place: u32) -> bool {
        // They are in that order.
        self.corrupt.binary_search(&(layer, place)).is_ok()
    }
}

impl Receives {
    /// Checks what has arrived, for a turn; whether there is more to do at once.
    pub(super) fn check(&mut self, now: Instant) -> bool {
        if !self.checksums {
            return false;
        }
        let (mut left, mut any, first) = (TURN_BYTES_MAX, false, self.check_next);
        for step in 0..self.grants.len() {
            let at = (first + step) % self.grants.len();
            let place = &mut self.grants[at];
            let Some(state) = place else { continue };
            let before = left;
            state.check(&self.pool, &mut self.scratch, &mut left);
            any |= left < before;
            let layers = self.pool.layout().shape().layers;
            if matches!(state.stage, Stage::Arrived(_)) && state.checked.next.0 >= layers {
                any = true;
                let verdicts = state.verdicts(self.pool.layout());
                state.confirm(verdicts, now);
                if self.link.ended.is_some() {
                    // The peer alone does not know.
                    state.end_well();
                    place.take_if(|state| state.abandoned);
                }
            }
            if left == 0 {
                // However fast this one is granted again, the others have their turn.
                self.check_next = at + 1;
                break;
            }
        }
        self.unchecked = (left == 0).then_some(now);
        any
    }
}

impl State {
    /// Goes on to check the layers that are there.
    fn check(&mut self, pool: &Pool, scratch: &mut [u8], left: &mut u64) {
        let layers = pool.layout().shape().layers;
        while *left > 0 && self.checked.next.0 < layers {
            let (layer, place) = self.checked.next;
            if !self.has_arrived(layer) {
                return;
            }
            let Some(&block) = self.hold.blocks().get(place as usize) else {
                self.checked.next = (layer + 1, 0);
                continue;
            };
            let wanted = self.wants(layer, place);
            if wanted {
                let Some(told) = self.sums.get(self.checked.sums) else { return };
                let Poll::Ready(sum) = self.checked.sum.add(pool, (layer, block), scratch, left) else {
                    return;
                };
                if !sum.is_ok_and(|sum| sum == *told) {
                    self.checked.corrupt.push((layer, place));
                }
            }
            // The source of a pull sums all that it offers.
            self.checked.sums += usize::from(wanted || self.pulls);
            self.checked.next.1 += 1;
            *left = left.saturating_sub(PASS_BYTES);
        }
    }

    /// Whether all writes of a layer have arrived.
    fn has_arrived(&self, layer: u32) -> bool {
        match self.stage {
            Stage::Arrived(_) => true,
            Stage::Filling | Stage::Revoking(_) => self.has_layer(layer),
            Stage::Confirming(..) | Stage::Ended(_) => false,
        }
    }

    /// Those of the blocks that were checked; nothing is vouched for of the others.
    pub(super) fn verdicts_checked(&self, layers: u32) -> Verdicts {
        let mut verdicts = Verdicts::new(layers, self.hold.blocks(), BlockVerdict::Valid);
        for (layer, place) in self.parts(layers).filter(|(layer, place)| !self.checked.has(*layer, *place)) {
            verdicts.set(layer, place as usize, BlockVerdict::Missing);
        }
        for &(layer, place) in &self.checked.corrupt {
            verdicts.set(layer, place as usize, BlockVerdict::Corrupt);
        }
        verdicts
    }
}
