//! Sending of pushes that have begun: first the source blocks (BEGIN), then the writes, then checksums if the peer
//! wants them.
//!
//! A push that goes layer by layer sends the writes and checksums of a layer when it is announced, and lets other
//! pushes post meanwhile. No stage changes here; `Writing::all_posted` is set after the last write.

use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use rdma_core::memory::CacheHint;

use super::begin::Planned;
use super::packed::Place;
use super::{Posted, PushKey, Pushes, Stage};
use crate::engine::EngineState;
use crate::kv::checksum::{DRIVE_BYTES_MAX, PASS_BYTES, Sum};
use crate::kv::layout::Extent;
use crate::kv::link::Link;
use crate::kv::message::{self, Begin, Grant};
use crate::kv::plan::{Count, End, Plan, Run, Stream, Wanted};
use crate::kv::staging::KEPT;
use crate::link::imm::Imm;

/// A push that has begun and has not sent everything.
#[derive(Debug)]
pub(super) struct Posting {
    key: PushKey,
    begin: Begin,
    transfer: u8,
    /// Number of destination blocks.
    places: u32,
    /// How much of the list the peer has been told.
    told: usize,
    plan: Arc<Plan>,
    writes: Stream,
    /// Whether some writes need slots of decode.
    unpacks: bool,
    /// Cache hint of the writes, from the bytes that all of them move.
    hint: CacheHint,
    /// Index of the next write, which its immediate carries.
    index: u32,
    /// Number of writes up to the end of each layer, if the push goes layer by layer.
    ends: Vec<u32>,
    wanted: Option<Wanted>,
    /// Checksums in progress; absent when the peer wants none.
    sums: Option<Sums>,
}

/// The result of one attempt to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// Everything was sent.
    Done,
    /// All announced layers were sent; the next layer is awaited.
    Waiting,
    /// A packed write waits for a slot.
    Held,
    /// The byte budget of this drive is used up; there is more to do at once.
    Again,
    /// The lane or the control queue has no room.
    Blocked,
}

/// Progress of the checksums of the wanted blocks, layer by layer.
#[derive(Debug, Default)]
struct Sums {
    /// Number of all checksums.
    total: u32,
    /// Sums that are computed and not sent.
    pending: Vec<u32>,
    told: u32,
    /// Layer and position of the next block to look at.
    next: (u32, u32),
    /// Sum in progress, of that block.
    sum: Sum,
}

impl Posting {
    pub(super) fn new((key, bytes): (PushKey, u64), begin: Begin, grant: Grant, planned: Planned) -> Self {
        let Planned { plan, count: Count { unpacked, ends, .. }, wanted, parts } = planned;
        // The number fits 32 bits: `plan` has checked it with `parts_of`.
        let sums = Sums { total: parts as u32, ..Sums::default() };
        let sums = grant.checksums.then_some(sums);
        let (writes, unpacks) = (plan.stream(), unpacked > 0);
        let places = grant.blocks;
        let hint = CacheHint::of_total(usize::try_from(bytes).unwrap_or(usize::MAX));
        Self {
            key,
            begin,
            transfer: grant.transfer,
            places,
            told: 0,
            plan,
            writes,
            unpacks,
            hint,
            index: 0,
            ends,
            wanted,
            sums,
        }
    }

    /// The number of the grant.
    pub(super) fn grant(&self) -> u64 {
        self.begin.grant
    }

    /// The runs of the next write.
    pub(super) fn parts(&self) -> &[Run] {
        self.writes.parts()
    }

    /// Whether this is the sending state of push `id`.
    pub(super) fn is_of(&self, id: u64) -> bool {
        self.key.id == id
    }

    /// Number of writes posted.
    pub(super) fn posted(&self) -> u32 {
        self.index
    }

    /// Number of writes that may be posted while `ready` layers are announced.
    fn allowed(&self, ready: Option<u32>) -> u32 {
        match ready {
            None => u32::MAX,
            Some(0) => 0,
            Some(ready) => self.ends.get(ready as usize - 1).copied().unwrap_or(u32::MAX),
        }
    }
}

impl Pushes {
    /// Sends as much as there is room for. Pushes post in the order in which they began. One that finds no room ends
    /// the attempt, because the room is the lane's and the pushes behind it would find none either. Returns whether
    /// anything was sent, and whether more checksums are to be computed at once.
    pub(super) fn post(&mut self, core: &mut EngineState) -> (bool, bool) {
        let (mut any, mut again, mut at) = (false, false, 0);
        let mut left = DRIVE_BYTES_MAX;
        while let Some(mut posting) = self.posting.remove(at) {
            let state = self
                .push_mut(posting.key)
                .map(|state| (Arc::clone(state.hold.list().numbers()), state.ready));
            let Some((blocks, ready)) = state else { continue };
            let posted_before = self.posted;
            let attempt = if !self.has_slots(&mut posting) {
                Attempt::Held
            } else if !send_sources(&self.link, core, &mut posting, &blocks) {
                Attempt::Blocked
            } else {
                match self.post_writes(core, &mut posting, ready) {
                    Attempt::Done | Attempt::Waiting => self.send_sums(core, &mut posting, ready, &mut left),
                    attempt => attempt,
                }
            };
            any |= matches!(attempt, Attempt::Done | Attempt::Again) || self.posted > posted_before;
            if attempt != Attempt::Done {
                self.posting.insert(at, posting);
            }
            match attempt {
                Attempt::Done => {}
                Attempt::Waiting | Attempt::Held => at += 1,
                Attempt::Again | Attempt::Blocked => {
                    again = attempt == Attempt::Again;
                    break;
                }
            }
        }
        (any, again)
    }

    /// Posts writes, and records the time spent and whether the lane was full.
    fn post_writes(&mut self, core: &mut EngineState, posting: &mut Posting, ready: Option<u32>) -> Attempt {
        let since = Instant::now();
        let attempt = self.fill_queue(core, posting, ready);
        self.journal.prepared(since);
        if attempt == Attempt::Blocked {
            self.journal.stalled();
        }
        attempt
    }

    /// Takes slots of decode for a push that needs some. Returns whether it has what it needs.
    fn has_slots(&mut self, posting: &mut Posting) -> bool {
        if posting.unpacks && posting.begin.slots == 0 {
            posting.begin.slots = self.packing.take(&posting.begin).unwrap_or_default().0;
        }
        !posting.unpacks || posting.begin.slots != 0
    }

    /// Posts writes until the lane is full, or the announced layers are posted.
    fn fill_queue(&mut self, core: &mut EngineState, posting: &mut Posting, ready: Option<u32>) -> Attempt {
        let Some(lane) = self.link.lane(core) else { return Attempt::Blocked };
        let (mut room, allowed) = (lane.room(), posting.allowed(ready));
        while let Some(write) = posting.writes.peek() {
            if posting.index >= allowed {
                return Attempt::Waiting;
            }
            if room == 0 {
                return Attempt::Blocked;
            }
            let (from, to) = match self.place(posting, write) {
                Place::At(from, to) => (from, to),
                Place::Later => {
                    // Slots of this side come back when what was posted is done.
                    lane.signal_rest();
                    return Attempt::Held;
                }
                Place::Nowhere => {
                    lane.violation("a region shorter than its layout");
                    return Attempt::Blocked;
                }
            };
            posting.writes.next();
            let imm = Imm::Block { transfer: posting.transfer, index: posting.index };
            posting.index += 1;
            // The last write of what may be posted now asks for a signal, so that its completion is reported without
            // further writes.
            let last = posting.index == allowed || posting.writes.peek().is_none();
            let hint = if write.destination == End::Staging { KEPT } else { posting.hint };
            lane.write_range(from, to, imm, hint, last);
            let packed = write.source == End::Staging;
            self.in_flight.push_back(Posted { key: posting.key, len: write.len as u32, packed });
            self.posted += 1;
            room -= 1;
        }
        let posted = self.posted;
        if let Some(state) = self.push_mut(posting.key)
            && let Stage::Writing(of) = &mut state.stage
        {
            of.all_posted.get_or_insert(posted);
        }
        self.packing.close(posting.grant());
        Attempt::Done
    }

    /// Computes checksums of the announced layers for at most `left` bytes, and sends them in pieces.
    fn send_sums(
        &mut self,
        core: &mut EngineState,
        posting: &mut Posting,
        ready: Option<u32>,
        left: &mut u64,
    ) -> Attempt {
        let (ours, theirs) = (self.link.route.source().layers(), self.link.route.destination().layers());
        // Layers of the peer's pool up to the first that is not ready.
        let (ready, layers) = match ready {
            Some(ready) if ready < ours => (self.link.route.ready(ready), theirs),
            _ => (theirs, theirs),
        };
        let end = if ready == layers { Attempt::Done } else { Attempt::Waiting };
        let Some(sums) = &mut posting.sums else { return end };
        let room = self.link.list_room(core).max(1);
        loop {
            let (layer, place) = sums.next;
            if sums.pending.len() == room || (layer >= ready && !sums.pending.is_empty()) {
                let (grant, told, pending) = (posting.begin.grant, sums.told, &sums.pending);
                if !self.link.send(core, message::CHECKSUMS, |body| {
                    message::write_checksums(body, grant, sums.total, told, pending)
                }) {
                    return Attempt::Blocked;
                }
                sums.told += sums.pending.len() as u32;
                sums.pending.clear();
            } else if layer >= ready {
                return end;
            } else if place < posting.places {
                if *left == 0 {
                    return Attempt::Again;
                }
                if posting.wanted.as_ref().is_none_or(|wanted| wanted.has(layer, place)) {
                    let pieces = posting.plan.pieces(layer, place);
                    let pieces = pieces.map(|(offset, _, len)| Extent { offset, len });
                    let sum = sums.sum.add(&self.pool, pieces, &mut self.scratch, left);
                    let Poll::Ready(sum) = sum else { return Attempt::Again };
                    // The read cannot fail for a layer and a block of the pool. If it did, the sum 0 would not match,
                    // and decode would call the block corrupt, which is safe.
                    sums.pending.push(sum.unwrap_or(0));
                }
                sums.next.1 += 1;
                *left = left.saturating_sub(PASS_BYTES);
            } else {
                sums.next = (layer + 1, 0);
            }
        }
    }
}

/// Sends the source blocks. Returns whether the peer was sent all of them; they go before the writes, so that the
/// peer can plan and count what follows.
fn send_sources(link: &Link, core: &mut EngineState, posting: &mut Posting, blocks: &[u32]) -> bool {
    let room = link.list_room(core).max(1);
    while posting.told < blocks.len() {
        let (begin, told) = (posting.begin, posting.told);
        if !link.send(core, message::BEGIN, |body| begin.write(body, blocks, told, room)) {
            return false;
        }
        posting.told += room;
    }
    true
}
