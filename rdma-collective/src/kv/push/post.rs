//! What a push sends, in this order: which blocks it writes from, the blocks, and their checksums if they are wanted. One
//! that goes by layer sends the blocks and sums of a layer when it is announced, and lets others go on meanwhile.

use std::iter::Peekable;
use std::task::Poll;
use std::time::Instant;

use rdma_core::memory::CacheHint;

use super::begin::Planned;
use super::{Pushes, Stage, State};
use crate::engine::Core;
use crate::kv::checksum::{Sum, TURN_BYTES_MAX};
use crate::kv::lease::Hold;
use crate::kv::link::Link;
use crate::kv::message::{self, Begin, Grant};
use crate::kv::plan::{Descriptors, Wanted};
use crate::link::imm::Imm;

/// A push that has begun and has not sent everything.
#[derive(Debug)]
pub(super) struct Posting {
    id: u64,
    begin: Begin,
    transfer: u8,
    /// Source blocks told.
    told: usize,
    writes: Peekable<Descriptors>,
    /// By what all of them move.
    expect: CacheHint,
    /// Of the next write.
    index: u32,
    /// Writes up to the end of each layer, when it goes by layer.
    ends: Vec<u32>,
    wanted: Option<Wanted>,
    /// Absent when nobody wants checksums.
    sums: Option<Sums>,
}

/// How far a push got in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It has sent everything.
    Done,
    /// It has sent what is announced, and waits for the next layer.
    Waiting,
    /// It has more to do, and lets others have a turn.
    Again,
    /// It waits for room.
    Blocked,
}

/// Checksums of the blocks that are wanted, layer by layer.
#[derive(Debug, Default)]
struct Sums {
    /// All of them.
    total: u32,
    /// Computed and not told.
    pending: Vec<u32>,
    told: u32,
    /// Layer and place of the next block to look at.
    next: (u32, u32),
    /// Of that block.
    sum: Sum,
}

impl Posting {
    pub(super) fn new((id, bytes): (u64, u64), begin: Begin, grant: Grant, planned: Planned) -> Self {
        let Planned { plan, ends, wanted, parts, .. } = planned;
        // No more than there are verdicts, which has been looked at.
        let sums = Sums { total: parts as u32, ..Sums::default() };
        let sums = grant.checksums.then_some(sums);
        let writes = plan.into_descriptors().peekable();
        let expect = CacheHint::of_total(usize::try_from(bytes).unwrap_or(usize::MAX));
        Self { id, begin, transfer: grant.transfer, told: 0, writes, expect, index: 0, ends, wanted, sums }
    }

    /// Whether it is that of a push.
    pub(super) fn is_of(&self, id: u64) -> bool {
        self.id == id
    }

    /// Writes posted.
    pub(super) fn posted(&self) -> u32 {
        self.index
    }

    /// How many writes may be posted while so many layers are announced.
    fn allowed(&self, ready: Option<u32>) -> u32 {
        match ready {
            None => u32::MAX,
            Some(0) => 0,
            Some(ready) => self.ends.get(ready as usize - 1).copied().unwrap_or(u32::MAX),
        }
    }
}

impl Pushes {
    /// Sends what there is room for; the pushes that have begun take turns in order. Whether there was something, and
    /// whether there are more sums to make at once.
    pub(super) fn post(&mut self, core: &mut Core) -> (bool, bool) {
        let (mut any, mut again, mut at) = (false, false, 0);
        let mut left = TURN_BYTES_MAX;
        while let Some(mut posting) = self.posting.remove(at) {
            let state = self.pushes.iter().flatten().find(|state| state.id == posting.id);
            let Some((hold, ready)) = state.map(|state| (&state.hold, state.ready)) else { continue };
            let posted_before = self.posted;
            let turn = if !tell_sources(&self.link, core, &mut posting, hold) {
                Turn::Blocked
            } else {
                match self.post_writes(core, &mut posting, ready) {
                    Turn::Done | Turn::Waiting => self.tell_sums(core, &mut posting, ready, &mut left),
                    turn => turn,
                }
            };
            any |= matches!(turn, Turn::Done | Turn::Again) || self.posted > posted_before;
            if turn != Turn::Done {
                self.posting.insert(at, posting);
            }
            match turn {
                Turn::Done => {}
                Turn::Waiting => at += 1,
                Turn::Again | Turn::Blocked => {
                    again = turn == Turn::Again;
                    break;
                }
            }
        }
        (any, again)
    }

    fn post_writes(&mut self, core: &mut Core, posting: &mut Posting, ready: Option<u32>) -> Turn {
        let since = Instant::now();
        let turn = self.fill_queue(core, posting, ready);
        self.journal.prepared(since);
        if turn == Turn::Blocked {
            self.journal.stalled();
        }
        turn
    }

    /// Keeps the queue full.
    fn fill_queue(&mut self, core: &mut Core, posting: &mut Posting, ready: Option<u32>) -> Turn {
        let (Some(lane), Some(remote)) = (self.link.lane(core), self.link.remote) else {
            return Turn::Blocked;
        };
        let (mut room, allowed) = (lane.room(), posting.allowed(ready));
        while posting.writes.peek().is_some() {
            if posting.index >= allowed {
                return Turn::Waiting;
            }
            if room == 0 {
                return Turn::Blocked;
            }
            let Some(write) = posting.writes.next() else { break };
            let Ok(to) = remote.slice(write.offset_remote..write.offset_remote + write.len) else {
                lane.violation("a region shorter than its layout");
                return Turn::Blocked;
            };
            // Offsets are within the pool, and lengths within 32 bits by the plan's bound.
            let from = self.source.range(write.offset_local, write.len);
            let imm = Imm::Block { transfer: posting.transfer, index: posting.index };
            posting.index += 1;
            let last = posting.index == allowed || posting.writes.peek().is_none();
            lane.write_range(from, to, imm, posting.expect, last);
            self.in_flight.push_back((posting.id, write.len as u32));
            self.posted += 1;
            room -= 1;
        }
        let of_id = |state: &&mut State| state.id == posting.id;
        if let Some(state) = self.pushes.iter_mut().flatten().find(of_id)
            && let Stage::Begun(of) = &mut state.stage
        {
            of.all_posted.get_or_insert(self.posted);
        }
        Turn::Done
    }

    /// Sums blocks of the layers that are announced, so many bytes of them, and tells the sums.
    fn tell_sums(
        &mut self,
        core: &mut Core,
        posting: &mut Posting,
        ready: Option<u32>,
        left: &mut u64,
    ) -> Turn {
        let layers = self.pool.layout().shape().layers;
        let ready = ready.unwrap_or(layers);
        let end = if ready == layers { Turn::Done } else { Turn::Waiting };
        let Some(sums) = &mut posting.sums else { return end };
        let of_id = |state: &&State| state.id == posting.id;
        let hold = self.pushes.iter().flatten().find(of_id).map(|state| &state.hold);
        let Some(hold) = hold else { return Turn::Done };
        let room = self.link.list_room(core).max(1);
        loop {
            let (layer, place) = sums.next;
            if sums.pending.len() == room || (layer >= ready && !sums.pending.is_empty()) {
                let (grant, told, pending) = (posting.begin.grant, sums.told, &sums.pending);
                if !self.link.tell(core, message::CHECKSUMS, |body| {
                    message::write_checksums(body, grant, sums.total, told, pending)
                }) {
                    return Turn::Blocked;
                }
                sums.told += sums.pending.len() as u32;
                sums.pending.clear();
            } else if layer >= ready {
                return end;
            } else if let Some(&block) = hold.blocks().get(place as usize) {
                if posting.wanted.as_ref().is_none_or(|wanted| wanted.has(layer, place)) {
                    let sum = sums.sum.add(&self.pool, (layer, block), &mut self.scratch, left);
                    let Poll::Ready(sum) = sum else { return Turn::Again };
                    // Layers and blocks of the pool itself; a sum that cannot be made does not hold, and is found so.
                    sums.pending.push(sum.unwrap_or(0));
                }
                sums.next.1 += 1;
            } else {
                sums.next = (layer + 1, 0);
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
