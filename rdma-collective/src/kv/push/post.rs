//! Sending of pushes that have begun: first the source blocks (BEGIN), then the writes, then checksums if the peer
//! wants them.
//!
//! A push that goes layer by layer posts whole layers, in the order in which they are announced, and lets other pushes
//! post meanwhile. Its checksums go in the order of the layers, so those of a layer wait for all layers before it. No
//! stage changes here; `Writing::all_posted` is set after the last write.

use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use rdma_core::RemoteMemory;
use rdma_core::memory::CacheHint;

use super::begin::Planned;
use super::packed::Place;
use super::{Posted, PushKey, Pushes, Stage};
use crate::engine::EngineState;
use crate::kv::checksum::{DRIVE_BYTES_MAX, PASS_BYTES, Sum};
use crate::kv::layout::Extent;
use crate::kv::link::Link;
use crate::kv::message::{self, Begin, Grant};
use crate::kv::plan::{Count, End, Plan, Run, Stream, Wanted, writes_of};
use crate::kv::pool::Pieces;
use crate::kv::staging::KEPT;
use crate::link::imm::Imm;

/// A push that has begun and has not sent everything.
#[derive(Debug)]
pub(super) struct Posting {
    key: PushKey,
    begin: Begin,
    transfer: u8,
    /// The memory of decode's pool with the keys of the grant, on a strict link.
    memory: Option<Pieces<RemoteMemory>>,
    /// Number of destination blocks.
    places: u32,
    /// How much of the list the peer has been told.
    told: usize,
    plan: Arc<Plan>,
    /// The writes of the layer that is posted now, or of all if the push does not go layer by layer.
    writes: Stream,
    layer: u32,
    /// Number of layers of which posting has begun.
    layers_begun: usize,
    /// Whether some writes need slots of decode.
    unpacks: bool,
    /// Cache hint of the writes, from the bytes that all of them move.
    hint: CacheHint,
    /// Index of the next write in the plan, which its immediate carries.
    index: u32,
    /// Number of writes posted.
    posted: u32,
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
    /// All announced layers were sent; another layer, or the note, is awaited.
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
    pub(super) fn new(
        (key, bytes): (PushKey, u64),
        begin: Begin,
        (grant, memory): (Grant, Option<Pieces<RemoteMemory>>),
        planned: Planned,
    ) -> Self {
        let Planned { plan, count: Count { unpacked, ends, .. }, wanted, parts } = planned;
        // The number fits 32 bits: `plan` has checked it with `parts_of`.
        let sums = Sums { total: parts as u32, ..Sums::default() };
        let sums = grant.checksums.then_some(sums);
        // A push that goes layer by layer has no layer to post yet, and one beyond the last has no writes.
        let beyond = plan.route().source().layers();
        let writes = if begin.by_layer { plan.stream_layer(beyond) } else { plan.stream() };
        let unpacks = unpacked > 0;
        let places = grant.blocks;
        let hint = CacheHint::of_total(usize::try_from(bytes).unwrap_or(usize::MAX));
        Self {
            key,
            begin,
            transfer: grant.transfer,
            memory,
            places,
            told: 0,
            plan,
            writes,
            layer: 0,
            layers_begun: 0,
            unpacks,
            hint,
            index: 0,
            posted: 0,
            ends,
            wanted,
            sums,
        }
    }

    pub(super) fn key(&self) -> PushKey {
        self.key
    }

    /// The number of the grant.
    pub(super) fn grant(&self) -> u64 {
        self.begin.grant
    }

    /// The memory of decode's pool, if it has keys of the grant.
    pub(super) fn memory(&self) -> Option<&Pieces<RemoteMemory>> {
        self.memory.as_ref()
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
        self.posted
    }

    /// Number of layers of which posting has begun.
    pub(super) fn layers_begun(&self) -> usize {
        self.layers_begun
    }

    /// Goes on to a layer, when all writes of the one before are posted.
    fn enter(&mut self, layer: u32) {
        self.layers_begun += 1;
        (self.layer, self.index) = (layer, writes_of(&self.ends, layer as usize).start);
        self.writes = self.plan.stream_layer(layer);
    }

    /// Number of layers of the destination, from the first on, that are summed up.
    fn summed(&self) -> u32 {
        let summed = |sums: &Sums| if sums.told == sums.total { u32::MAX } else { sums.next.0 };
        self.sums.as_ref().map_or(u32::MAX, summed)
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
            let state = self.push_mut(posting.key).map(|state| Arc::clone(state.hold.list().numbers()));
            let Some(blocks) = state else { continue };
            let before = (self.posted, posting.summed());
            let attempt = if !self.has_slots(&mut posting) {
                Attempt::Held
            } else if !send_sources(&self.link, core, &mut posting, &blocks) {
                Attempt::Blocked
            } else {
                match self.post_writes(core, &mut posting) {
                    posted @ (Attempt::Done | Attempt::Waiting) => {
                        let summed = self.send_sums(core, &mut posting, &mut left);
                        match [posted, summed] {
                            [Attempt::Done, Attempt::Done] => self.send_note(core, &posting),
                            [_, Attempt::Done] => posted,
                            _ => summed,
                        }
                    }
                    attempt => attempt,
                }
            };
            let moved = (self.posted, posting.summed()) != before;
            any |= moved || matches!(attempt, Attempt::Done | Attempt::Again);
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
    fn post_writes(&mut self, core: &mut EngineState, posting: &mut Posting) -> Attempt {
        let since = Instant::now();
        let attempt = self.fill_queue(core, posting);
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
    fn fill_queue(&mut self, core: &mut EngineState, posting: &mut Posting) -> Attempt {
        let Some(lane) = self.link.lane(core) else { return Attempt::Blocked };
        let mut room = lane.room();
        while posting.posted < posting.begin.writes {
            let Some(write) = posting.writes.peek() else {
                let Some(layer) = self.next_layer(posting) else { return Attempt::Waiting };
                posting.enter(layer);
                continue;
            };
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
            posting.posted += 1;
            // The last write of a layer asks for a signal, so that its completion is reported without further writes.
            let last = posting.writes.peek().is_none();
            let hint = if write.destination == End::Staging { KEPT } else { posting.hint };
            lane.write_range(from, to, imm, hint, last);
            let packed = write.source == End::Staging;
            let (key, layer) = (posting.key, posting.layer);
            self.in_flight.push_back(Posted { key, len: write.len as u32, layer, packed });
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

    /// Sends the note of a push that has posted everything, once the note is set.
    fn send_note(&mut self, core: &mut EngineState, posting: &Posting) -> Attempt {
        let Begin { grant, note, .. } = posting.begin;
        let state = self.pushes.get_mut(posting.key.place).and_then(Option::as_mut).filter(|_| note);
        let Some(state) = state else { return Attempt::Done };
        if state.note.is_due() {
            return Attempt::Waiting;
        }
        let sent = state.note.send(&self.link, core, message::NOTE, grant);
        if sent { Attempt::Done } else { Attempt::Blocked }
    }

    /// Sends checksums as far as layers are announced, and notes which layers are not read for them any more.
    fn send_sums(&mut self, core: &mut EngineState, posting: &mut Posting, left: &mut u64) -> Attempt {
        let Some(from) = posting.sums.as_ref().map(|sums| sums.next.0) else { return Attempt::Done };
        let ready = self.layers_to_sum(posting, from);
        let attempt = self.sum_until(core, posting, ready, left);
        let summed = posting.summed();
        if let Some(layers) = self.push_mut(posting.key).and_then(|state| state.layers.as_mut()) {
            layers.sum(summed);
        }
        attempt
    }

    /// Computes checksums of the first `ready` layers of the peer's pool for at most `left` bytes, and sends them in
    /// pieces.
    fn sum_until(
        &mut self,
        core: &mut EngineState,
        posting: &mut Posting,
        ready: u32,
        left: &mut u64,
    ) -> Attempt {
        let Some(sums) = &mut posting.sums else { return Attempt::Done };
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
                return if sums.told == sums.total { Attempt::Done } else { Attempt::Waiting };
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
