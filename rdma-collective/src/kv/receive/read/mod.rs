//! Pulls at decode: matching with offers, reads, and their completion. A pull is a `State` without a grant message,
//! and shares the stages of grants.
//!
//! This file owns the entry of pulls into `Filling`, their match with an offer, and `Filling` → `Revoking` for pulls
//! (`stop_reading`). Offers arrive in `offers`.

mod offers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use rdma_core::memory::CacheHint;

use super::Receives;
use super::state::{Announced, Feed, Revocation, Stage, State};
use crate::engine::EngineState;
use crate::kv::blocks::{numbers_of_ranges, ranges as ranges_of, tokens_of};
use crate::kv::fence::{Fence, QUIESCE_WITHIN};
use crate::kv::message::{self, Begin, Offer, Release, Take};
use crate::kv::note::Incoming;
use crate::kv::plan::{Count, End, Plan, PlanError, PlanOptions, Route, Run, Stream, parts_of};
use crate::kv::staging::{SLOT_BYTES, SLOTS};
use crate::kv::taken_back::TakenBack;
use crate::kv::{KvError, RequestId};
use crate::link::imm::WRITES_MAX;

/// The pulls of a link, and the offers that no pull has met.
#[derive(Debug, Default)]
pub(super) struct Pulls {
    offers: Vec<IncomingOffer>,
    /// The highest lease offered so far: a message about a higher one breaks the protocol.
    leases_seen: u64,
    /// Requests whose offer was recalled before a pull met it.
    taken_back: TakenBack,
    /// Pulls that have begun and have not posted everything, in the order in which they post.
    reading: VecDeque<Reading>,
    /// The reads that are not known to be done, in posting order.
    in_flight: VecDeque<PostedRead>,
    done: u64,
    /// Packed reads that were posted, and those of them that were unpacked or dropped.
    packed: u64,
    unpacked: u64,
    /// Messages that wait for room on the lane.
    takes: VecDeque<Take>,
    releases: VecDeque<Release>,
}

/// An offer that no pull has met.
#[derive(Debug)]
struct IncomingOffer {
    offer: Offer,
    /// The blocks, followed by token ranges if it has any. The list of an offer of more blocks than this side's pool
    /// has stays empty, because no pull can meet such an offer.
    list: Vec<u32>,
    /// Length of the list, and how much of it has arrived.
    total: u32,
    arrived: u32,
    note: Incoming,
    expires: Option<Instant>,
}

/// A read that is not known to be done.
#[derive(Debug)]
struct PostedRead {
    transfer: u8,
    grant: u64,
    index: u32,
    len: u32,
    /// The slot that is read into, and the runs that lie there.
    packed: Option<(u32, Vec<Run>)>,
}

/// A pull that has begun and has not posted everything.
#[derive(Debug)]
struct Reading {
    transfer: u8,
    grant: u64,
    reads: Stream,
    /// Cache hint of the reads, from the bytes that all of them move.
    hint: CacheHint,
    index: u32,
    /// Number of reads up to the end of each layer, if they go layer by layer.
    ends: Vec<u32>,
}

impl IncomingOffer {
    /// Whether the list and the note have arrived.
    fn is_whole(&self) -> bool {
        self.arrived == self.total && self.note.is_whole()
    }

    /// Number of blocks in the list.
    fn blocks_told(&self, route: &Route) -> u32 {
        self.total.saturating_sub(numbers_of_ranges(self.offer.tokens, route.source()))
    }
}

impl Pulls {
    /// Queues the release of a pull that was given up.
    pub(super) fn release(&mut self, lease: u64, reads: u32) {
        self.releases.push_back(Release { lease, done: false, reads, corrupt: 0, bytes: 0 });
    }

    /// Drops all reads that are not posted, as the link has ended.
    pub(super) fn clear(&mut self) {
        self.reading.clear();
    }

    /// Whether the lease was offered at some time, so that a late message about it is no breach.
    pub(super) fn knows(&self, lease: u64) -> bool {
        lease <= self.leases_seen
    }
}

impl Receives {
    /// Matches pulls that wait with offers that are complete.
    pub(super) fn begin_pulls(&mut self, now: Instant) -> bool {
        let route = Arc::clone(&self.link.route);
        let pulls = &mut self.pulls;
        let mut any = false;
        for state in self.grants.iter_mut().flatten() {
            if !state.waits_for_offer() {
                continue;
            }
            let whole =
                |known: &IncomingOffer| known.offer.request == state.grant.request && known.is_whole();
            let Some(at) = pulls.offers.iter().position(whole) else { continue };
            let mut known = pulls.offers.swap_remove(at);
            state.note_in = std::mem::take(&mut known.note);
            let lease = known.offer.lease;
            any = true;
            let since = Instant::now();
            let options = PlanOptions {
                write_bytes_max: self.write_bytes_max,
                pack_bytes: self.pack_bytes,
                stage_bytes: SLOT_BYTES,
                by_layer: state.reads_by_layer(),
                pulls: true,
                ..PlanOptions::default()
            };
            let planned = plan(state, &known, &route, &options, now);
            self.journal.prepared(since);
            match planned {
                Ok((plan, ends)) => {
                    let writes = state.arrived.expected();
                    let write_bytes_max = self.write_bytes_max;
                    let begin = Begin {
                        grant: state.grant.grant,
                        lease,
                        writes,
                        write_bytes_max,
                        pack_bytes: 0,
                        slots: 0,
                        by_layer: options.by_layer,
                        tokens: false,
                        note: false,
                    };
                    let mut begun = Announced::new(begin, known.total, now);
                    begun.planned(Arc::clone(&plan), ends.clone());
                    state.begin = Some(begun);
                    state.set_lease(Some(lease));
                    let checksums = self.checksums && state.sums_total(self.pool.layout().layers()) > 0;
                    pulls.takes.push_back(Take { lease, checksums });
                    let reads = plan.stream();
                    let hint = CacheHint::of_total(usize::try_from(state.bytes).unwrap_or(usize::MAX));
                    let (transfer, grant) = (state.grant.transfer, state.grant.grant);
                    if writes > 0 {
                        pulls.reading.push_back(Reading { transfer, grant, reads, hint, index: 0, ends });
                    }
                }
                Err(error) => {
                    pulls.releases.push_back(Release { lease, done: false, reads: 0, corrupt: 0, bytes: 0 });
                    // The pull goes through `Revoking` with 0 writes, so that `finish_revoked` ends it like any
                    // other.
                    let (cause, fence) = (Arc::new(error), Fence::after(QUIESCE_WITHIN, now));
                    state.stage = Stage::Revoking(Revocation::of_reads(cause, fence, 0));
                }
            }
        }
        any
    }

    /// Posts reads until the lane is full.
    pub(super) fn post_reads(&mut self, core: &mut EngineState) -> bool {
        if self.pulls.reading.is_empty() {
            return false;
        }
        let since = Instant::now();
        let any = self.fill_queue(core);
        self.journal.prepared(since);
        if !self.pulls.reading.is_empty() {
            self.journal.stalled();
        }
        any
    }

    /// Posts reads of the oldest pulls until the lane is full. Reads take no receive of the peer, so the send queue
    /// alone limits them, less the entries that the lane keeps for credits, messages and heartbeats.
    fn fill_queue(&mut self, core: &mut EngineState) -> bool {
        let pulls = &mut self.pulls;
        let (Some(lane), Some(remote)) = (self.link.lane(core), &self.link.remote) else { return false };
        let mut room = lane.room_for_reads();
        let mut any = false;
        while let Some(reading) = pulls.reading.front_mut() {
            while let Some(read) = reading.reads.peek() {
                if room == 0 {
                    return any;
                }
                let slot = (pulls.packed % u64::from(SLOTS)) as u32;
                if read.destination == End::Staging && pulls.packed - pulls.unpacked >= SLOTS.into() {
                    // Slots come back when what was posted is done.
                    lane.signal_rest();
                    return any;
                }
                let to = match (read.destination, &self.link.inbox) {
                    (End::Pool(destination), _) => self.destination.range(destination, read.len),
                    (End::Staging, Some(inbox)) => Some(inbox.range(slot, read.len)),
                    (End::Staging, None) => None,
                };
                let from = match read.source {
                    End::Pool(source) => remote.slice(source, read.len).ok(),
                    End::Staging => None,
                };
                // The plan keeps offsets within the pools and lengths within 32 bits, so there is no such range.
                let (Some(from), Some(to)) = (from, to) else {
                    lane.violation("a region shorter than its layout");
                    return any;
                };
                let is_packed = read.destination == End::Staging;
                let packed = is_packed.then(|| (slot, reading.reads.parts().to_vec()));
                pulls.packed += u64::from(is_packed);
                reading.reads.next();
                let index = reading.index;
                // The last read of a layer asks for a signal, so that the layer is reported at once.
                let last = reading.reads.peek().is_none() || reading.ends.binary_search(&(index + 1)).is_ok();
                lane.read_range(to, from, reading.hint, last);
                let (transfer, grant) = (reading.transfer, reading.grant);
                pulls.in_flight.push_back(PostedRead {
                    transfer,
                    grant,
                    index,
                    len: read.len as u32,
                    packed,
                });
                reading.index += 1;
                room -= 1;
                any = true;
            }
            pulls.reading.pop_front();
        }
        any
    }

    /// Counts the reads that the lane reports as done: for a pull they are what arriving writes are for a grant. The
    /// lane completes reads in posting order.
    pub(super) fn count_reads(&mut self, core: &mut EngineState, now: Instant) -> bool {
        let Some(done) = self.link.lane(core).map(|lane| lane.ranges_done()) else { return false };
        let any = done > self.pulls.done;
        if any {
            self.moved = now;
        }
        while self.pulls.done < done {
            self.pulls.done += 1;
            let Some(read) = self.pulls.in_flight.pop_front() else { continue };
            let PostedRead { transfer, grant, index, len, packed } = read;
            self.pulls.unpacked += u64::from(packed.is_some());
            let state = self.grants.get_mut(usize::from(transfer)).and_then(Option::as_mut);
            let state = state.filter(|state| state.grant.grant == grant && state.is_open());
            // The blocks are held as long as the pull is open: afterwards nothing is unpacked into them.
            let unpacked = match (&state, &packed, &self.link.inbox) {
                (Some(_), Some((slot, runs)), Some(inbox)) => inbox.unpack(&self.pool, *slot, runs).is_ok(),
                _ => packed.is_none(),
            };
            if let Some(state) = state.filter(|_| unpacked)
                && state.arrived.note(index)
            {
                if let Some(begun) = &mut state.begin {
                    begun.note(index);
                }
                state.bytes_arrived += u64::from(len);
                state.latest = now;
                self.landed = (self.landed.0 + 1, self.landed.1 + u64::from(len));
            }
        }
        any
    }

    /// Stops a pull: no more reads are posted, and the pull ends when the posted ones are done. No message is needed,
    /// because this side knows how many reads there are.
    pub(super) fn stop_reading(&mut self, grant: u64, cause: Arc<KvError>, fence: Fence) {
        let at = self.pulls.reading.iter().position(|reading| reading.grant == grant);
        let stopped = at.and_then(|at| self.pulls.reading.remove(at));
        let Some(Some(state)) = self.slot(grant) else { return };
        let posted = stopped.map_or(state.arrived.expected(), |reading| reading.index);
        state.stage = Stage::Revoking(Revocation::of_reads(cause, fence, posted));
    }

    /// Asks for a signal on the reads of stopped pulls, because the last posted read may carry none.
    pub(super) fn signal_reads(&mut self, core: &mut EngineState) {
        let waits = |state: &State| state.pulls() && matches!(state.stage, Stage::Revoking(_));
        if self.grants.iter().flatten().any(waits)
            && !self.pulls.in_flight.is_empty()
            && let Some(lane) = self.link.lane(core)
        {
            lane.signal_rest();
        }
    }

    /// Sends takes, then releases, as far as the lane has room.
    pub(super) fn send_leases(&mut self, core: &mut EngineState) {
        while let Some(take) = self.pulls.takes.front() {
            if !self.link.send(core, message::TAKE, |body| take.write(body)) {
                return;
            }
            self.pulls.takes.pop_front();
        }
        while let Some(release) = self.pulls.releases.front() {
            if !self.link.send(core, message::RELEASE, |body| release.write(body)) {
                return;
            }
            self.pulls.releases.pop_front();
        }
    }

    /// Gives up the pulls that are late.
    pub(super) fn expire_pulls(&mut self, core: &mut EngineState, known: Instant, now: Instant) -> bool {
        let mut any = false;
        let (peer, lane) = (self.link.peer.clone(), self.link.name);
        for at in 0..self.grants.len() {
            let Some(Some(state)) = self.grants.get(at) else { continue };
            let Feed::Read { lease, .. } = state.feed else { continue };
            if !matches!(state.stage, Stage::Filling) || !state.deadline.expired_at(known) {
                continue;
            }
            any = true;
            let (id, request) = (state.grant.grant, state.grant.request);
            let bytes_outstanding = state.bytes_outstanding();
            let waited = now.saturating_duration_since(state.granted);
            let last_progress = self.journal.idle(state.granted, now);
            let cause = match lease {
                None => KvError::NotOffered { request, peer: peer.clone() },
                Some(_) => KvError::DeadlineExceeded {
                    request,
                    peer: peer.clone(),
                    lane,
                    bytes_outstanding,
                    last_progress,
                    waited,
                },
            };
            self.give_up_pull(core, id, Arc::new(cause), Fence::after(QUIESCE_WITHIN, now));
        }
        any
    }

    /// Fails for a pull that has nothing to read: the peer offers none of its blocks, or took back those of the
    /// request.
    pub(super) fn check_pull(&mut self, request: RequestId, now: Instant) -> Result<(), KvError> {
        if self.link.remote.is_none() {
            return Err(KvError::NotReadable);
        }
        if self.checksums && !self.link.route.keeps_order() {
            return Err(KvError::ChecksumsOfPull);
        }
        // Reported once.
        let taken_back = self.pulls.taken_back.take(request, now).is_some();
        if taken_back { Err(KvError::LeaseExpired { request, peer: self.link.peer.clone() }) } else { Ok(()) }
    }

    /// Gives up a pull in `Filling`. Returns `false` for any other transfer, which is untouched.
    pub(super) fn give_up_pull(
        &mut self,
        core: &mut EngineState,
        id: u64,
        cause: Arc<KvError>,
        fence: Fence,
    ) -> bool {
        let layout = self.pool.layout().clone();
        let Some(Some(state)) = self.slot(id) else { return false };
        if !state.pulls() || !matches!(state.stage, Stage::Filling) {
            return false;
        }
        if state.waits_for_offer() {
            state.fail(cause, &layout);
            self.link.unwatch(core);
        } else {
            self.stop_reading(id, cause, fence);
        }
        true
    }
}

/// Makes the plan of a pull, and announces its number of reads to the count of arrivals. Returns the plan, and the
/// reads up to the end of each layer if they go layer by layer.
fn plan(
    state: &mut State,
    known: &IncomingOffer,
    route: &Arc<Route>,
    options: &PlanOptions,
    now: Instant,
) -> Result<(Arc<Plan>, Vec<u32>), KvError> {
    let (request, blocks) = (state.grant.request, state.hold.blocks());
    let peer = || state.peer.0.clone();
    if known.expires.is_some_and(|expires| now >= expires) {
        return Err(KvError::LeaseExpired { request, peer: peer() });
    }
    let counts = || {
        let (source_blocks, granted) = (known.blocks_told(route), blocks.len() as u32);
        KvError::BlockCounts { request, peer: peer(), source_blocks, granted }
    };
    // Empty because this side did not keep a list of more blocks than any pull could meet.
    if known.list.is_empty() {
        return Err(counts());
    }
    let (sources, ranges) =
        known.list.split_at_checked(known.blocks_told(route) as usize).ok_or_else(counts)?;
    let tokens = tokens_of(&ranges_of(ranges), &state.hold.list().tokens());
    let tokens = tokens.ok_or(KvError::TokenRanges { request, peer: peer() })?;
    let options = PlanOptions { tokens, ..options.clone() };
    let plan = match Plan::of_parts(route, [sources, blocks], &options, state.wanted.clone()) {
        Err(PlanError::TokenCounts { .. }) => return Err(counts()),
        plan => plan?,
    };
    let Count { writes: reads, ends, .. } = plan.count(WRITES_MAX);
    if reads > WRITES_MAX || parts_of(route.destination().layers(), blocks.len()).is_none() {
        return Err(KvError::TooManyWrites { request, max: WRITES_MAX });
    }
    state.bytes = plan.bytes();
    state.arrived.announce(reads);
    Ok((plan, ends))
}

#[cfg(test)]
mod tests;
