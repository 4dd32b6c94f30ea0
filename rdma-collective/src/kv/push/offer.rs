//! The stages of offers: prefill's side of pulls.
//!
//! An offer goes `Open` → `Ended` when decode releases it, or `Open` → `Recalling` → `Ended` when it is taken back or
//! expires. The blocks are leased until `Ended`, because decode may read them until it has released them.

use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use rdma_core::Deadline;

use super::Pushes;
use crate::engine::EngineState;
use crate::kv::blocks::List;
use crate::kv::checksum::{DRIVE_BYTES_MAX, Sum};
use crate::kv::fence::{Fence, RECALL_WITHIN};
use crate::kv::gauge::Permit;
use crate::kv::journal::{Entry, TransferKind, TransferOutcome};
use crate::kv::keep_alive::{KeepAlive, Signs};
use crate::kv::lease::Hold;
use crate::kv::link::Link;
use crate::kv::message::{self, Extend, NotePiece, Offer, Reason, Recall, Release, Take};
use crate::kv::note::{Incoming, Outgoing};
use crate::kv::outcome::{Progress, Sent};
use crate::kv::plan::parts_of;
use crate::kv::pool::PoolUse;
use crate::kv::request::Asked;
use crate::kv::{KvError, RequestId};
use crate::link::imm::{TRANSFERS_MAX, WRITES_MAX};

/// The state of one offer.
#[derive(Debug)]
pub(super) struct OfferState {
    request: RequestId,
    entry: Entry,
    hold: Hold,
    /// The room that a node has given the transfer, until its slot is free.
    _permit: Option<Arc<Permit>>,
    deadline: Deadline,
    keep: KeepAlive,
    offered: Instant,
    /// How much of the list the peer has been told.
    told: usize,
    /// Checksums, once the peer has asked for them.
    sums: Option<Sums>,
    /// The deadline was moved, and the peer knows the earlier one.
    extended: bool,
    /// The note for the peer, and the one that comes before the release.
    note: Outgoing,
    note_in: Incoming,
    stage: OfferStage,
    abandoned: bool,
}

/// Progress of the checksums of all offered blocks, layer by layer.
#[derive(Debug, Default)]
struct Sums {
    told: u32,
    /// Sums that are computed and not sent.
    pending: Vec<u32>,
    /// Sum in progress, of the next block.
    sum: Sum,
}

/// The stage of an offer.
#[derive(Debug)]
pub(super) enum OfferStage {
    /// The peer may read.
    Open,
    /// The peer is asked to stop reading. `fence` is the moment at which the lane ends instead.
    Recalling {
        reason: Reason,
        cause: KvError,
        fence: Fence,
        told: bool,
    },
    Ended(Result<Sent, KvError>),
}

impl OfferState {
    /// The lease, which is also the number of the offer.
    pub(super) fn id(&self) -> u64 {
        self.hold.number()
    }

    /// The moment at which the offer has to be looked at even if nothing arrives.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.stage {
            OfferStage::Open => Some(self.deadline.instant()),
            OfferStage::Recalling { fence, .. } => Some(fence.due()),
            OfferStage::Ended(_) => None,
        }
    }

    /// The moment at which a deadline that is kept alive may have to be moved.
    pub(super) fn look(&self) -> Option<Instant> {
        matches!(self.stage, OfferStage::Open).then(|| self.keep.look()).flatten()
    }

    /// Moves the deadline if it is kept alive.
    pub(super) fn keep_alive(&mut self, signs: Signs, now: Instant) {
        if self.look().is_some() {
            self.extended |= self.keep.renew(&mut self.deadline, signs, now);
        }
    }

    /// Goes to `Ended`: releases the blocks, and records the outcome once.
    fn end(&mut self, outcome: Result<Sent, KvError>) {
        self.hold.release();
        if !matches!(self.stage, OfferStage::Ended(_)) {
            let arrived = |sent: &Sent| TransferOutcome::arrived(sent.corrupt);
            let how = outcome.as_ref().map_or_else(TransferOutcome::from, arrived);
            self.entry.end(how, outcome.as_ref().map_or(0, |sent| sent.bytes));
            self.stage = OfferStage::Ended(outcome);
        }
    }

    /// Ends the offer with the link. Not `fenced` means that the device refused to end the lane, so the blocks are
    /// quarantined.
    pub(super) fn lose(&mut self, fenced: bool, error: KvError) {
        if matches!(self.stage, OfferStage::Ended(_)) {
            return;
        }
        if !fenced {
            self.hold.quarantine();
        }
        match &self.stage {
            OfferStage::Recalling { cause, .. } if fenced => {
                let cause = cause.clone();
                self.end(Err(cause));
            }
            _ => self.end(Err(error)),
        }
    }

    pub(super) fn request(&self) -> RequestId {
        self.request
    }

    /// The result of an offer that has ended.
    pub(super) fn outcome(&self) -> Option<Result<(), KvError>> {
        let OfferStage::Ended(outcome) = &self.stage else { return None };
        Some(outcome.clone().map(drop))
    }

    /// The error of an offer that has ended with one, or is about to.
    pub(super) fn error(&self) -> Option<KvError> {
        match &self.stage {
            OfferStage::Recalling { cause, .. } => Some(cause.clone()),
            OfferStage::Open | OfferStage::Ended(_) => self.outcome()?.err(),
        }
    }

    pub(super) fn began(&self) -> Instant {
        self.offered
    }

    /// Whether the offer has this lease and has not ended.
    pub(super) fn is_open(&self, lease: u64) -> bool {
        self.id() == lease && !matches!(self.stage, OfferStage::Ended(_))
    }

    /// Whether the offer has ended and no handle waits for its outcome.
    pub(super) fn is_forgotten(&self) -> bool {
        self.abandoned && matches!(self.stage, OfferStage::Ended(_))
    }
}

impl Pushes {
    /// Adds an offer in stage `Open`, and returns its lease.
    pub(in crate::kv) fn offer(
        &mut self,
        asked: Asked,
        list: &List,
        deadline: Deadline,
        now: Instant,
    ) -> Result<u64, KvError> {
        self.link.check()?;
        let Asked { request, note, keep_alive, permit, .. } = asked;
        if self.pool.purpose().at_prefill() != Some(PoolUse::SourceToPull) {
            return Err(KvError::NotReadable);
        }
        let open = |offered: &&OfferState| !matches!(offered.stage, OfferStage::Ended(_));
        if self.offers.iter().filter(open).any(|offered| offered.request == request) {
            return Err(KvError::RequestRepeated { request });
        }
        if self.offers.len() >= TRANSFERS_MAX {
            return Err(KvError::TooManyTransfers { max: TRANSFERS_MAX });
        }
        if parts_of(self.pool.layout().layers(), list.blocks().len()).is_none() {
            return Err(KvError::TooManyWrites { request, max: WRITES_MAX });
        }
        let hold = Hold::lease(&self.pool, list.clone())?;
        let lease = hold.number();
        let (told, sums, extended, stage, abandoned) = (0, None, false, OfferStage::Open, false);
        let entry = self.journal.begin(TransferKind::Offer, request, list.blocks().len(), now);
        let offered = OfferState {
            request,
            entry,
            hold,
            _permit: permit,
            deadline,
            keep: KeepAlive::new(keep_alive.or(self.keep_alive), deadline, now),
            offered: now,
            told,
            sums,
            extended,
            note: Outgoing::new(note),
            note_in: Incoming::promised(true),
            stage,
            abandoned,
        };
        self.offers.push(offered);
        self.leases_given = self.leases_given.max(lease);
        self.link.waits += 1;
        Ok(lease)
    }

    #[cfg(test)]
    pub(super) fn set_offer(&mut self, stage: OfferStage) -> u64 {
        let offered = &mut self.offers[0];
        offered.stage = stage;
        offered.id()
    }

    #[cfg(test)]
    pub(super) fn offer_stage(&self) -> &OfferStage {
        &self.offers[0].stage
    }

    /// Takes the outcome of an offer, which is there once; `None` while the offer is open.
    pub(super) fn take_offer(&mut self, lease: u64) -> Option<Result<Sent, KvError>> {
        let ended =
            |offered: &OfferState| offered.id() == lease && matches!(offered.stage, OfferStage::Ended(_));
        let at = self.offers.iter().position(ended)?;
        let OfferState { stage, mut note_in, .. } = self.offers.swap_remove(at);
        match stage {
            OfferStage::Ended(outcome) => Some(outcome.map(|sent| Sent { note: note_in.take(), ..sent })),
            _ => None,
        }
    }

    /// The progress of an offer, of which this side knows nothing before decode has released it.
    pub(super) fn offer_progress(&self, lease: u64) -> Option<Progress> {
        let offered = self.offers.iter().find(|offered| offered.id() == lease)?;
        let bytes = self.link.route.bytes_of_source(offered.hold.list());
        let sent = if let OfferStage::Ended(Ok(sent)) = &offered.stage { Some(sent) } else { None };
        // Decode may have wanted some of the blocks alone.
        let none = Progress { bytes, ..Progress::default() };
        Some(sent.map_or(none, |&Sent { bytes, writes, .. }| Progress {
            bytes_arrived: bytes,
            bytes,
            writes_arrived: writes,
            writes,
        }))
    }

    pub(super) fn offer_deadline(&self, lease: u64) -> Option<Deadline> {
        let offered = self.offers.iter().find(|offered| offered.id() == lease)?;
        Some(match &offered.stage {
            OfferStage::Recalling { fence, .. } => offered.deadline.max(Deadline::at(fence.latest())),
            OfferStage::Open | OfferStage::Ended(_) => offered.deadline,
        })
    }

    /// Moves the deadline of an offer to a later one.
    pub(super) fn extend_offer(&mut self, lease: u64, deadline: Deadline) -> Option<Result<bool, KvError>> {
        let offered = self.offers.iter_mut().find(|offered| offered.id() == lease)?;
        Some(match &offered.stage {
            OfferStage::Open => {
                offered.extended |= deadline > offered.deadline;
                offered.deadline = offered.deadline.max(deadline);
                Ok(offered.extended)
            }
            OfferStage::Recalling { cause, .. } => Err(cause.clone()),
            OfferStage::Ended(Ok(_)) => Err(KvError::AlreadyEnded { request: offered.request }),
            OfferStage::Ended(Err(error)) => Err(error.clone()),
        })
    }

    /// Tells decode of an offer that lives longer, if the lane has room.
    fn send_extension(link: &Link, core: &mut EngineState, offered: &mut OfferState) {
        let (id, deadline) = (offered.id(), offered.deadline);
        let extend = Extend { id, time_to_live_ms: message::time_to_live_ms(deadline, Instant::now()) };
        if offered.extended && matches!(offered.stage, OfferStage::Open) {
            offered.extended = !link.send(core, message::EXTEND, |body| extend.write(body));
        }
    }

    /// Notes that the handle of an offer was dropped.
    pub(super) fn abandon_offer(&mut self, lease: u64) {
        let offered = self.offers.iter_mut().find(|offered| offered.id() == lease);
        offered.into_iter().for_each(|offered| offered.abandoned = true);
    }

    /// Takes an offer back: `Open` → `Recalling`. The offer ends when decode has released it, or when the lane is
    /// fenced: at `until`, or after 5 s. An offer that the peer was never told of ends at once.
    pub(super) fn recall(
        &mut self,
        core: &mut EngineState,
        lease: u64,
        until: Option<Deadline>,
        now: Instant,
    ) {
        let Some(offered) = self.offers.iter_mut().find(|offered| offered.id() == lease) else { return };
        let cause = KvError::Revoked { request: offered.request };
        match &mut offered.stage {
            OfferStage::Open if offered.told == 0 => {
                offered.end(Err(cause));
                self.link.unwatch(core);
            }
            OfferStage::Open => {
                let (reason, fence) = (Reason::Revoked, Fence::by(until, now));
                offered.stage = OfferStage::Recalling { reason, cause, fence, told: false };
            }
            OfferStage::Recalling { fence, .. } => {
                until.into_iter().for_each(|until| fence.no_later_than(until.instant()));
            }
            OfferStage::Ended(_) => {}
        }
    }

    /// Sends recalls, offers and checksums as far as the lane has room. Returns whether more checksums are to be
    /// computed at once.
    ///
    /// Recalls go first, because they lead to free blocks; then offers, then checksums.
    pub(super) fn send_offers(&mut self, core: &mut EngineState) -> bool {
        for offered in &mut self.offers {
            let lease = offered.id();
            if let OfferStage::Recalling { reason, told: told @ false, .. } = &mut offered.stage {
                let recall = Recall { lease, reason: *reason };
                *told = self.link.send(core, message::RECALL, |body| recall.write(body));
            }
        }
        let room = self.link.list_room(core).max(1);
        for offered in &mut self.offers {
            let lease = offered.id();
            let time_to_live_ms = message::time_to_live_ms(offered.deadline, Instant::now());
            let tokens = offered.hold.list().has_tokens();
            let note = !offered.note.is_empty();
            let offer = Offer { lease, request: offered.request, time_to_live_ms, tokens, note };
            let list = offered.hold.list().numbers();
            while matches!(offered.stage, OfferStage::Open) && offered.told < list.len() {
                let told = offered.told;
                if !self.link.send(core, message::OFFER, |body| offer.write(body, list, told, room)) {
                    return false;
                }
                offered.told += room;
            }
            let is_open = matches!(offered.stage, OfferStage::Open);
            if note && is_open && !offered.note.send(&self.link, core, message::LEASE_NOTE, lease) {
                return false;
            }
            Self::send_extension(&self.link, core, offered);
        }
        self.send_lease_sums(core, room)
    }

    /// Computes and sends checksums of leased blocks for at most [`DRIVE_BYTES_MAX`] bytes. Returns whether there is
    /// more to compute at once.
    fn send_lease_sums(&mut self, core: &mut EngineState, room: usize) -> bool {
        let layers = self.pool.layout().layers();
        let mut left = DRIVE_BYTES_MAX;
        for offered in &mut self.offers {
            let (lease, blocks) = (offered.id(), offered.hold.blocks());
            // The product fits 32 bits: `offer` has checked it with `parts_of`.
            let total = layers * blocks.len() as u32;
            let Some(sums) = offered.sums.as_mut().filter(|_| !matches!(offered.stage, OfferStage::Ended(_)))
            else {
                continue;
            };
            while sums.told < total {
                let pending = (total - sums.told).min(room as u32) as usize;
                while sums.pending.len() < pending {
                    let at = sums.told as usize + sums.pending.len();
                    let (layer, place) = ((at / blocks.len()) as u32, at % blocks.len());
                    let block = blocks.get(place).copied().unwrap_or(0);
                    let pieces = self.pool.layout().extents(layer, block).into_iter().flatten();
                    let sum = sums.sum.add(&self.pool, pieces, &mut self.scratch, &mut left);
                    let Poll::Ready(sum) = sum else { return true };
                    // The read cannot fail for a layer and a block of the pool. If it did, the sum 0 would not match,
                    // and decode would call the block corrupt, which is safe.
                    sums.pending.push(sum.unwrap_or(0));
                }
                if !self.link.send(core, message::LEASE_CHECKSUMS, |body| {
                    message::write_checksums(body, lease, total, sums.told, &sums.pending)
                }) {
                    return false;
                }
                sums.told += sums.pending.len() as u32;
                sums.pending.clear();
            }
        }
        false
    }

    /// Handles a take: the peer has begun to read, and may want checksums.
    pub(super) fn taken(&mut self, take: Take) -> Result<(), &'static str> {
        let known = self.offers.iter_mut().find(|offered| offered.id() == take.lease);
        match known {
            Some(offered) if take.checksums && offered.sums.is_none() => {
                offered.sums = Some(Sums::default());
            }
            Some(offered) if take.checksums || offered.sums.is_some() => {
                return Err("a lease that is taken twice");
            }
            Some(_) => {}
            None if take.lease > self.leases_given => return Err("a lease that was not given"),
            None => {}
        }
        Ok(())
    }

    /// Handles a piece of the note that comes before a release.
    pub(super) fn noted_release(&mut self, piece: &NotePiece<'_>) -> Result<(), &'static str> {
        let offered = self.offers.iter_mut().find(|offered| offered.is_open(piece.id));
        offered.ok_or("a note of a lease that is not open")?.note_in.add(piece)
    }

    /// Handles a release: the peer reads no more. A complete read is a success even if the offer was being recalled.
    pub(super) fn released(
        &mut self,
        core: &mut EngineState,
        release: Release,
        now: Instant,
    ) -> Result<(), &'static str> {
        let open = |offered: &&mut OfferState| {
            offered.id() == release.lease && !matches!(offered.stage, OfferStage::Ended(_))
        };
        let Some(offered) = self.offers.iter_mut().find(open) else {
            return Err("a release of a lease that is not open");
        };
        if release.bytes > self.link.route.bytes_of_source(offered.hold.list()) {
            return Err("a release of more than was offered");
        }
        if release.done && offered.note_in.is_partial() {
            return Err("a release before the end of its note");
        }
        let request = offered.request;
        let outcome = match &offered.stage {
            _ if release.done => Ok(Sent {
                note: Vec::new(),
                bytes: release.bytes,
                writes: release.reads,
                corrupt: release.corrupt,
                elapsed: now.saturating_duration_since(offered.offered),
            }),
            OfferStage::Recalling { cause, .. } => Err(cause.clone()),
            _ => Err(KvError::PeerRevoked { request, peer: self.link.peer.clone() }),
        };
        if let Ok(sent) = &outcome {
            self.journal.moved(sent.writes.into(), sent.bytes, now);
        }
        offered.end(outcome);
        self.link.unwatch(core);
        Ok(())
    }

    /// Expires offers: `Open` → `Recalling`, and from there a fence when the release does not come. Returns whether
    /// an offer has changed, and whether the lane has to be fenced.
    pub(super) fn expire_offers(
        &mut self,
        core: &mut EngineState,
        (known, now): (Instant, Instant),
        moved: Instant,
    ) -> (bool, bool) {
        let (mut any, mut fence_now) = (false, false);
        for offered in &mut self.offers {
            // An offer that the peer was not told of cannot be released, so its deadline is compared with the clock;
            // any other one with the time up to which arrivals were read.
            let until = if offered.told == 0 { now } else { known };
            if offered.due().is_none_or(|due| due > until) {
                continue;
            }
            let cause = KvError::LeaseExpired { request: offered.request, peer: self.link.peer.clone() };
            match &mut offered.stage {
                OfferStage::Open if offered.told == 0 => {
                    any = true;
                    offered.end(Err(cause));
                    self.link.unwatch(core);
                }
                OfferStage::Open => {
                    any = true;
                    let (reason, fence) = (Reason::Expired, Fence::after(RECALL_WITHIN, now));
                    offered.stage = OfferStage::Recalling { reason, cause, fence, told: false };
                }
                OfferStage::Recalling { fence, .. } => fence_now |= fence.is_due(known, moved),
                OfferStage::Ended(_) => {}
            }
        }
        (any, fence_now)
    }
}
