//! What a push sends, in this order: which blocks it writes from, the blocks, and their checksums if they are wanted.

use std::iter::Peekable;
use std::sync::Arc;

use super::{Granted, Pushes, Stage, State};
use crate::comm::Core;
use crate::comm::link::imm::Imm;
use crate::kv::checksum;
use crate::kv::lease::Hold;
use crate::kv::link::Link;
use crate::kv::message::{self, Begin};
use crate::kv::plan::{BlockPlan, Descriptors};

/// Bytes of blocks that are summed before others have a turn.
const SUMMED_BYTES_MAX: u64 = 1 << 20;

/// A push that has begun and has not sent everything.
#[derive(Debug)]
pub(super) struct Posting {
    id: u64,
    begin: Begin,
    transfer: u8,
    /// Source blocks told.
    told: usize,
    writes: Peekable<Descriptors>,
    /// Of the next write.
    index: u32,
    /// Absent when nobody wants checksums.
    sums: Option<Sums>,
}

/// How far a push got in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It has sent everything.
    Done,
    /// It has more to do, and lets others have a turn.
    Again,
    /// It waits for room.
    Blocked,
}

/// Checksums in the order of the request, layer by layer.
#[derive(Debug, Default)]
struct Sums {
    /// Computed and not told.
    pending: Vec<u32>,
    told: u32,
}

impl Posting {
    pub(super) fn new(id: u64, begin: Begin, granted: Granted, plan: Arc<BlockPlan>) -> Self {
        let sums = granted.grant.checksums.then(Sums::default);
        let writes = plan.into_descriptors().peekable();
        Self { id, begin, transfer: granted.grant.transfer, told: 0, writes, index: 0, sums }
    }
}

impl Pushes {
    /// Sends what there is room for; the pushes that have begun take turns in order.
    pub(super) fn post(&mut self, core: &mut Core) -> bool {
        let mut any = false;
        while let Some(mut posting) = self.posting.pop_front() {
            let id = posting.id;
            let hold = self.pushes.iter().flatten().find(|state| state.id == id).map(|state| &state.hold);
            let Some(hold) = hold else { continue };
            let posted_before = self.posted;
            let turn = if tell_sources(&self.link, core, &mut posting, hold)
                && self.post_writes(core, &mut posting)
            {
                self.tell_sums(core, &mut posting)
            } else {
                Turn::Blocked
            };
            any |= turn != Turn::Blocked || self.posted > posted_before;
            if turn != Turn::Done {
                self.posting.push_front(posting);
                break;
            }
        }
        any
    }

    /// Keeps the queue full; whether all writes have been posted.
    fn post_writes(&mut self, core: &mut Core, posting: &mut Posting) -> bool {
        let (Some(lane), Some(remote)) = (self.link.lane(core), self.link.remote) else { return false };
        let mut room = lane.room();
        while posting.writes.peek().is_some() {
            if room == 0 {
                return false;
            }
            let Some(write) = posting.writes.next() else { break };
            let Ok(to) = remote.slice(write.offset_remote..write.offset_remote + write.len) else {
                lane.violation("a region shorter than its layout");
                return false;
            };
            // Offsets are within the pool, and lengths within 32 bits by the plan's bound.
            let from = self.source.range(write.offset_local as usize, write.len as usize);
            let imm = Imm::Block { transfer: posting.transfer, index: posting.index };
            let last = posting.writes.peek().is_none();
            lane.write_range(from, to, imm, last);
            self.in_flight.push_back((posting.id, write.len as u32));
            self.posted += 1;
            posting.index += 1;
            room -= 1;
        }
        let of_id = |state: &&mut State| state.id == posting.id;
        if let Some(state) = self.pushes.iter_mut().flatten().find(of_id)
            && let Stage::Begun { all_posted: all_posted @ None, .. } = &mut state.stage
        {
            *all_posted = Some(self.posted);
        }
        true
    }

    /// Sums blocks and tells the sums.
    fn tell_sums(&mut self, core: &mut Core, posting: &mut Posting) -> Turn {
        let Some(sums) = &mut posting.sums else { return Turn::Done };
        let of_id = |state: &&State| state.id == posting.id;
        let hold = self.pushes.iter().flatten().find(of_id).map(|state| &state.hold);
        let Some(hold) = hold else { return Turn::Done };
        let (blocks, layout) = (hold.blocks(), self.pool.layout());
        let total = layout.shape().layers * blocks.len() as u32;
        let room = self.link.list_room(core).max(1);
        let mut summed = 0;
        loop {
            let next = sums.told + sums.pending.len() as u32;
            if sums.pending.len() == room || (next == total && !sums.pending.is_empty()) {
                let (grant, told, pending) = (posting.begin.grant, sums.told, &sums.pending);
                if !self.link.tell(core, message::CHECKSUMS, |body| {
                    message::write_checksums(body, grant, total, told, pending)
                }) {
                    return Turn::Blocked;
                }
                sums.told = next;
                sums.pending.clear();
            } else if next == total {
                return Turn::Done;
            } else if summed >= SUMMED_BYTES_MAX {
                return Turn::Again;
            } else {
                let (layer, place) = (next / blocks.len() as u32, next % blocks.len() as u32);
                let block = blocks.get(place as usize).copied().unwrap_or(0);
                // Layers and blocks of the pool itself; a sum that cannot be made does not hold, and is found so.
                let sum = checksum::of_block(&self.pool, layer, block, &mut self.scratch);
                sums.pending.push(sum.unwrap_or(0));
                summed += layout.layer_block_bytes();
            }
        }
    }
}

/// Whether the peer knows all source blocks.
fn tell_sources(link: &Link, core: &mut Core, posting: &mut Posting, hold: &Hold) -> bool {
    let room = link.list_room(core).max(1);
    while posting.told < hold.blocks().len() {
        let (begin, told) = (posting.begin, posting.told);
        if !link.tell(core, message::BEGIN, |body| begin.write(body, hold.blocks(), told, room)) {
            return false;
        }
        posting.told += room;
    }
    true
}
