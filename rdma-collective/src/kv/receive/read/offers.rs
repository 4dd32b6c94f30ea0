//! Offers as they arrive and as they are recalled, whether or not a pull has met them.

use std::sync::Arc;
use std::time::Instant;

use super::IncomingOffer;
use crate::engine::EngineState;
use crate::kv::blocks::numbers_of_ranges;
use crate::kv::fence::{Fence, QUIESCE_WITHIN};
use crate::kv::layout::Side;
use crate::kv::message::{self, Extend, NotePiece, Offer, Piece, Reason, Recall, Release};
use crate::kv::note::Incoming;
use crate::kv::receive::Receives;
use crate::kv::receive::state::{Stage, State};
use crate::kv::{KvError, RequestId};
use crate::link::PeerName;
use crate::link::imm::TRANSFERS_MAX;

impl Receives {
    /// Handles one piece of an offer.
    pub(in crate::kv::receive) fn offered(
        &mut self,
        offer: Offer,
        piece: Piece<'_>,
        now: Instant,
    ) -> Result<(), &'static str> {
        let pulls = &mut self.pulls;
        let blocks = piece.total.saturating_sub(numbers_of_ranges(offer.tokens, self.link.route.source()));
        if blocks == 0 || blocks > self.link.route.source().blocks() {
            return Err("an offer of no blocks, or of more than there are");
        }
        if piece.first == 0 {
            // Takes and releases that wait for room count too. Otherwise a peer that offers and recalls in turns, and
            // takes no messages, would make these queues grow without bound.
            if pulls.offers.len() >= TRANSFERS_MAX
                || pulls.takes.len() + pulls.releases.len() > 2 * TRANSFERS_MAX
                || pulls.offers.iter().any(|known| known.offer.lease == offer.lease)
            {
                return Err("an offer too many");
            }
            pulls.leases_seen = pulls.leases_seen.max(offer.lease);
            pulls.taken_back.forget(offer.request);
            let expires = message::expires(offer.time_to_live_ms, now);
            // The list grows as pieces arrive and is not reserved in advance, because `total` is the peer's word: a
            // bad peer could make this side allocate without bound.
            let (list, total, arrived) = (Vec::new(), piece.total, 0);
            let note = Incoming::promised(offer.note);
            pulls.offers.push(IncomingOffer { offer, list, total, arrived, note, expires });
        }
        match pulls.offers.iter_mut().find(|known| known.offer.lease == offer.lease) {
            Some(known)
                if (known.offer.request, known.offer.tokens, known.offer.note)
                    == (offer.request, offer.tokens, offer.note)
                    && (known.total, known.arrived) == (piece.total, piece.first) =>
            {
                let numbers = piece.numbers();
                // A piece never goes beyond the whole list.
                known.arrived += numbers.len() as u32;
                if blocks <= self.link.route.blocks_max(Side::Source) {
                    known.list.extend(numbers);
                }
                Ok(())
            }
            _ => Err("an offer out of order"),
        }
    }

    /// Handles EXTEND: an offer lives longer.
    pub(in crate::kv::receive) fn extended(
        &mut self,
        extend: Extend,
        now: Instant,
    ) -> Result<(), &'static str> {
        if !self.pulls.knows(extend.id) {
            return Err("an extension of a lease that was not offered");
        }
        // A lease that a pull reads lives as long as the pull.
        if let Some(known) = self.pulls.offers.iter_mut().find(|known| known.offer.lease == extend.id) {
            known.expires = message::expires(extend.time_to_live_ms, now);
        }
        Ok(())
    }

    /// Handles a piece of the note of an offer.
    pub(in crate::kv::receive) fn note_of_offer(
        &mut self,
        piece: &NotePiece<'_>,
    ) -> Result<(), &'static str> {
        match self.pulls.offers.iter_mut().find(|known| known.offer.lease == piece.id) {
            Some(known) if known.arrived == known.total => known.note.add(piece),
            _ => Err("a note of a lease that is not offered"),
        }
    }

    /// Handles a recall: the peer wants its blocks back.
    pub(in crate::kv::receive) fn recalled(
        &mut self,
        core: &mut EngineState,
        recall: Recall,
        now: Instant,
    ) -> Result<(), &'static str> {
        let Recall { lease, reason } = recall;
        if lease > self.pulls.leases_seen {
            return Err("a recall of a lease that was not offered");
        }
        if let Some(at) = self.pulls.offers.iter().position(|known| known.offer.lease == lease) {
            let request = self.pulls.offers.swap_remove(at).offer.request;
            let waits = |state: &&State| state.grant.request == request && state.waits_for_offer();
            // A pull that waits for the rest of the offer ends with the reason; otherwise the reason is kept for the
            // next pull of the request.
            match self.grants.iter().flatten().find(waits).map(|state| state.grant.grant) {
                Some(id) => {
                    let cause = Arc::new(recalled(request, self.link.peer.clone(), reason));
                    self.give_up_pull(core, id, cause, Fence::after(QUIESCE_WITHIN, now));
                }
                None => self.pulls.taken_back.note(request, reason, now),
            }
            self.pulls.releases.push_back(Release { lease, done: false, reads: 0, corrupt: 0, bytes: 0 });
        }
        let reads = |state: &&State| state.lease() == Some(lease) && matches!(state.stage, Stage::Filling);
        if let Some(state) = self.grants.iter().flatten().find(reads) {
            let (grant, request) = (state.grant.grant, state.grant.request);
            // The peer fences by its own deadline. This side does not fence before the pull's own deadline has
            // passed.
            let fence = Fence::after(QUIESCE_WITHIN, now.max(state.deadline.instant()));
            self.stop_reading(grant, Arc::new(recalled(request, self.link.peer.clone(), reason)), fence);
        }
        // All bytes were read, and only checking is left, which may take long. The lease is released now, so that the
        // source does not wait for it.
        let read =
            |state: &&mut State| state.lease() == Some(lease) && matches!(state.stage, Stage::Unchecked(_));
        if let Some(state) = self.grants.iter_mut().flatten().find(read) {
            state.set_lease(None);
            let reads = state.arrived.count();
            self.pulls.release(lease, reads);
        }
        // Any other lease was released before the peer knew.
        Ok(())
    }
}

/// The error of a pull whose offer was taken back.
fn recalled(request: RequestId, peer: PeerName, reason: Reason) -> KvError {
    match reason {
        Reason::Revoked => KvError::PeerRevoked { request, peer },
        Reason::Expired => KvError::LeaseExpired { request, peer },
    }
}
