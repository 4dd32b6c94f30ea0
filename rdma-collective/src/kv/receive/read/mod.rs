//! Decode's side of pulls: offers that came, and reads of their blocks. What has arrived is kept as that of a grant.

mod offers;

use std::collections::VecDeque;
use std::iter::Peekable;
use std::sync::Arc;
use std::time::Instant;

use rdma_core::Deadline;
use rdma_core::memory::CacheHint;

use super::state::{Begun, Revoking, Stage, State};
use super::{Receives, unwatch};
use crate::engine::Core;
use crate::kv::KvError;
use crate::kv::fence::{Fence, QUIESCE_WITHIN};
use crate::kv::journal::TransferKind;
use crate::kv::message::{self, Begin, Offer, Reason, Release, Take};
use crate::kv::plan::{BlockPair, BlockPlan, Descriptors, Parts, parts_of};
use crate::kv::remembered::Remembered;
use crate::kv::verdict::Verdicts;
use crate::link::imm::WRITES_MAX;

/// The pulls of a link.
#[derive(Debug, Default)]
pub(super) struct Pulls {
    offers: Vec<Offered>,
    /// The highest lease offered.
    leases_seen: u64,
    /// Requests whose offer was recalled before a pull met it.
    taken_back: Remembered,
    /// Those that have begun, in order: the first one posts.
    reading: VecDeque<Reading>,
    /// By grant, index and length: reads posted and not known to be done.
    in_flight: VecDeque<(u64, u32, u32)>,
    done: u64,
    /// What the peer is to be told.
    takes: VecDeque<Take>,
    releases: VecDeque<Release>,
}

/// An offer that no pull has met.
#[derive(Debug)]
struct Offered {
    offer: Offer,
    blocks: Vec<u32>,
    total: u32,
    expires: Option<Instant>,
}

/// A pull that has begun and has not posted everything.
#[derive(Debug)]
struct Reading {
    grant: u64,
    reads: Peekable<Descriptors>,
    /// By what all of them move.
    expect: CacheHint,
    index: u32,
}

impl Pulls {
    /// The lease of a pull that was given up ends.
    pub(super) fn release(&mut self, lease: u64, reads: u32) {
        self.releases.push_back(Release { lease, done: false, reads, parts: 0, corrupt: 0 });
    }

    /// Nothing is posted any more.
    pub(super) fn clear(&mut self) {
        self.reading.clear();
    }

    pub(super) fn knows(&self, lease: u64) -> bool {
        lease <= self.leases_seen
    }
}

impl Receives {
    /// Whether an offer for the request is known to have ended, which is told once.
    pub(super) fn offer_ended(&mut self, request: u64, now: Instant) -> bool {
        self.pulls.taken_back.take(request, now).is_some()
    }

    /// Brings pulls that wait together with offers that are whole.
    pub(super) fn begin_pulls(&mut self, now: Instant) -> bool {
        let (theirs, ours) = (self.link.theirs, *self.pool.layout());
        let pulls = &mut self.pulls;
        let mut any = false;
        for state in self.grants.iter_mut().flatten() {
            if !state.waits_for_offer() {
                continue;
            }
            let whole = |known: &Offered| {
                known.offer.request == state.grant.request && known.blocks.len() == known.total as usize
            };
            let Some(at) = pulls.offers.iter().position(whole) else { continue };
            let known = pulls.offers.swap_remove(at);
            let lease = known.offer.lease;
            any = true;
            let since = Instant::now();
            let planned = plan(state, &known, (theirs, ours), self.write_bytes_max, now);
            self.journal.prepared(since);
            match planned {
                Ok(plan) => {
                    let writes = state.arrived.expected();
                    let write_bytes_max = self.write_bytes_max;
                    let begin =
                        Begin { grant: state.grant.grant, lease, writes, write_bytes_max, by_layer: false };
                    let mut begun = Begun::new(begin, now);
                    begun.plan = Some(Arc::clone(&plan));
                    state.begin = Some(begun);
                    state.lease = Some(lease);
                    pulls.takes.push_back(Take { lease, checksums: self.checksums });
                    let reads = plan.into_descriptors().peekable();
                    let expect = CacheHint::of_total(usize::try_from(state.bytes).unwrap_or(usize::MAX));
                    pulls.reading.push_back(Reading { grant: state.grant.grant, reads, expect, index: 0 });
                }
                Err(error) => {
                    pulls.releases.push_back(Release { lease, done: false, reads: 0, parts: 0, corrupt: 0 });
                    // Ended with those that are taken back.
                    let (reason, cause) = (Reason::Revoked, Arc::new(error));
                    let (fence, told, writes) = (Fence::after(QUIESCE_WITHIN, now), true, Some(0));
                    state.stage = Stage::Revoking(Revoking { reason, cause, fence, told, writes });
                }
            }
        }
        any
    }

    /// Keeps the queue full of reads.
    pub(super) fn post_reads(&mut self, core: &mut Core) -> bool {
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

    fn fill_queue(&mut self, core: &mut Core) -> bool {
        let pulls = &mut self.pulls;
        let (Some(lane), Some(remote)) = (self.link.lane(core), self.link.remote) else { return false };
        let mut room = lane.room_for_reads();
        let mut any = false;
        while let Some(reading) = pulls.reading.front_mut() {
            while let Some(read) = reading.reads.peek().copied() {
                if room == 0 {
                    return any;
                }
                let Ok(from) = remote.slice(read.offset_local..read.offset_local + read.len) else {
                    lane.violation("a region shorter than its layout");
                    return any;
                };
                reading.reads.next();
                // Offsets are within the pool, and lengths within 32 bits by the plan's bound.
                let to = self.destination.range(read.offset_remote, read.len);
                lane.read_range(to, from, reading.expect, reading.reads.peek().is_none());
                pulls.in_flight.push_back((reading.grant, reading.index, read.len as u32));
                reading.index += 1;
                room -= 1;
                any = true;
            }
            pulls.reading.pop_front();
        }
        any
    }

    /// Takes what the lane says of reads that are done: they are the arrivals of a pull.
    pub(super) fn count_reads(&mut self, core: &mut Core, now: Instant) -> bool {
        let Some(done) = self.link.lane(core).map(|lane| lane.ranges_done()) else { return false };
        let any = done > self.pulls.done;
        if any {
            self.moved = now;
        }
        while self.pulls.done < done {
            self.pulls.done += 1;
            let Some((grant, index, len)) = self.pulls.in_flight.pop_front() else { continue };
            if let Some(state) = self.place(grant).and_then(Option::as_mut)
                && state.is_open()
                && state.arrived.note(index)
            {
                state.bytes_arrived += u64::from(len);
                state.latest = now;
                self.landed = (self.landed.0 + 1, self.landed.1 + u64::from(len));
            }
        }
        any
    }

    /// Posts no more reads of a pull; it ends when those that were posted are done.
    pub(super) fn stop_reading(&mut self, grant: u64, cause: Arc<KvError>, fence: Fence) {
        let at = self.pulls.reading.iter().position(|reading| reading.grant == grant);
        let stopped = at.and_then(|at| self.pulls.reading.remove(at));
        let Some(Some(state)) = self.place(grant) else { return };
        let posted = stopped.map_or(state.arrived.expected(), |reading| reading.index);
        let (reason, told, writes) = (Reason::Revoked, true, Some(posted));
        state.stage = Stage::Revoking(Revoking { reason, cause, fence, told, writes });
    }

    /// What was last posted may have no signal of its own.
    pub(super) fn signal_reads(&mut self, core: &mut Core) {
        let waits = |state: &State| state.pulls && matches!(state.stage, Stage::Revoking(_));
        if self.grants.iter().flatten().any(waits)
            && !self.pulls.in_flight.is_empty()
            && let Some(lane) = self.link.lane(core)
        {
            lane.signal_rest();
        }
    }

    /// Tells the peer what is read, and what is not any more.
    pub(super) fn tell_leases(&mut self, core: &mut Core) {
        while let Some(take) = self.pulls.takes.front() {
            if !self.link.tell(core, message::TAKE, |body| take.write(body)) {
                return;
            }
            self.pulls.takes.pop_front();
        }
        while let Some(release) = self.pulls.releases.front() {
            if !self.link.tell(core, message::RELEASE, |body| release.write(body)) {
                return;
            }
            self.pulls.releases.pop_front();
        }
    }

    /// Gives up the pulls that are late.
    pub(super) fn expire_pulls(&mut self, core: &mut Core, known: Instant, now: Instant) -> bool {
        let mut any = false;
        let (peer, lane) = (self.link.peer, self.link.name);
        for at in 0..self.grants.len() {
            let Some(Some(state)) = self.grants.get(at) else { continue };
            let late = matches!(state.stage, Stage::Filling) && state.deadline.expired_at(known);
            if !state.pulls || !late {
                continue;
            }
            any = true;
            let (id, request) = (state.grant.grant, state.grant.request);
            let bytes_outstanding = state.bytes_outstanding();
            let waited = now.saturating_duration_since(state.granted);
            let last_progress = self.journal.idle(state.granted, now);
            let cause = match state.lease {
                None => KvError::NotOffered { request },
                Some(_) => KvError::DeadlineExceeded {
                    request,
                    peer,
                    lane,
                    bytes_outstanding,
                    last_progress,
                    waited,
                },
            };
            self.give_up_pull(core, id, Arc::new(cause), Fence::after(QUIESCE_WITHIN, now));
        }
        self.grants.iter_mut().for_each(|place| {
            place.take_if(|state| state.pulls && state.abandoned && matches!(state.stage, Stage::Ended(_)));
        });
        any
    }

    /// Begins a pull; its number. It is kept as a grant that is not told to anybody.
    pub(in crate::kv) fn add_pull(
        &mut self,
        core: &mut Core,
        request: u64,
        blocks: (&[u32], Option<&Verdicts>),
        deadline: Deadline,
        now: Instant,
    ) -> Result<u64, KvError> {
        self.link.check()?;
        if self.link.remote.is_none() {
            return Err(KvError::NotReadable);
        }
        if self.offer_ended(request, now) {
            return Err(KvError::LeaseExpired { request });
        }
        self.add(core, (TransferKind::Pull, request), blocks, deadline, now)
    }

    /// Takes back a pull, or lets it end at its deadline; `false` when it is none that fills.
    pub(super) fn give_up_pull(
        &mut self,
        core: &mut Core,
        id: u64,
        cause: Arc<KvError>,
        fence: Fence,
    ) -> bool {
        let layout = *self.pool.layout();
        let Some(Some(state)) = self.place(id) else { return false };
        if !state.pulls || !matches!(state.stage, Stage::Filling) {
            return false;
        }
        if state.lease.is_none() {
            state.fail(cause, &layout);
            unwatch(&self.link, core);
        } else {
            self.stop_reading(id, cause, fence);
        }
        true
    }
}

/// What is read from where, announced to what counts the arrivals.
fn plan(
    state: &mut State,
    known: &Offered,
    (theirs, ours): (crate::kv::layout::Layout, crate::kv::layout::Layout),
    read_bytes_max: u32,
    now: Instant,
) -> Result<Arc<BlockPlan>, KvError> {
    let (request, blocks) = (state.grant.request, state.hold.blocks());
    if known.expires.is_some_and(|expires| now >= expires) {
        return Err(KvError::LeaseExpired { request });
    }
    if known.blocks.len() != blocks.len() {
        let (source_blocks, granted) = (known.blocks.len() as u32, blocks.len() as u32);
        return Err(KvError::BlockCounts { request, source_blocks, granted });
    }
    let pairs = known.blocks.iter().zip(blocks);
    let pairs: Vec<_> = pairs.map(|(&source, &destination)| BlockPair { source, destination }).collect();
    let parts = Parts { by_layer: false, wanted: state.wanted.as_ref() };
    let plan = Arc::new(BlockPlan::of_parts((theirs, ours), &pairs, read_bytes_max, parts)?);
    let (reads, _) = plan.count(WRITES_MAX);
    if reads > WRITES_MAX || parts_of(ours.shape().layers, pairs.len()).is_none() {
        return Err(KvError::TooManyWrites { request, max: WRITES_MAX });
    }
    state.arrived.announce(reads);
    Ok(plan)
}

#[cfg(test)]
mod tests;
