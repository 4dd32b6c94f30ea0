//! Offers as they come, and as they are taken back: of those that a pull reads, and of those that none has met.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Offered;
use crate::engine::Core;
use crate::kv::KvError;
use crate::kv::fence::{Fence, QUIESCE_WITHIN};
use crate::kv::message::{Offer, Piece, Reason, Recall, Release};
use crate::kv::receive::Receives;
use crate::kv::receive::state::{Stage, State};
use crate::link::imm::TRANSFERS_MAX;

impl Receives {
    /// Source blocks that may be read.
    pub(in crate::kv::receive) fn offered(
        &mut self,
        offer: Offer,
        piece: Piece<'_>,
        now: Instant,
    ) -> Result<(), &'static str> {
        let pulls = &mut self.pulls;
        if piece.total == 0 || piece.total > self.link.theirs.shape().blocks {
            return Err("an offer of no blocks, or of more than there are");
        }
        if piece.first == 0 {
            // One of a lease that the peer has not been told of ends its use of that: so many there can be of each.
            if pulls.offers.len() >= TRANSFERS_MAX
                || pulls.takes.len() + pulls.releases.len() > 2 * TRANSFERS_MAX
                || pulls.offers.iter().any(|known| known.offer.lease == offer.lease)
            {
                return Err("an offer too many");
            }
            pulls.leases_seen = pulls.leases_seen.max(offer.lease);
            pulls.taken_back.forget(offer.request);
            let expires = now.checked_add(Duration::from_millis(offer.time_to_live_ms.into()));
            // Not reserved in advance: how long it will be is the peer's word.
            pulls.offers.push(Offered { offer, blocks: Vec::new(), total: piece.total, expires });
        }
        match pulls.offers.iter_mut().find(|known| known.offer.lease == offer.lease) {
            Some(known) if known.total == piece.total && known.blocks.len() == piece.first as usize => {
                known.blocks.extend(piece.numbers());
                Ok(())
            }
            _ => Err("an offer out of order"),
        }
    }

    /// The peer wants its blocks back.
    pub(in crate::kv::receive) fn recalled(
        &mut self,
        core: &mut Core,
        recall: Recall,
        now: Instant,
    ) -> Result<(), &'static str> {
        let Recall { lease, reason } = recall;
        if lease > self.pulls.leases_seen {
            return Err("a recall of nothing");
        }
        if let Some(at) = self.pulls.offers.iter().position(|known| known.offer.lease == lease) {
            let request = self.pulls.offers.swap_remove(at).offer.request;
            let waits = |state: &&State| state.grant.request == request && state.waits_for_offer();
            // One that waits for the rest of it is told, or else the next one.
            match self.grants.iter().flatten().find(waits).map(|state| state.grant.grant) {
                Some(id) => {
                    let cause = Arc::new(recalled(request, reason));
                    self.give_up_pull(core, id, cause, Fence::after(QUIESCE_WITHIN, now));
                }
                None => self.pulls.taken_back.note(request, reason, now),
            }
            self.pulls.releases.push_back(Release { lease, done: false, reads: 0, parts: 0, corrupt: 0 });
        }
        let reads = |state: &&State| state.lease == Some(lease) && matches!(state.stage, Stage::Filling);
        if let Some(state) = self.grants.iter().flatten().find(reads) {
            let (grant, request) = (state.grant.grant, state.grant.request);
            // The peer has a deadline of its own; this side gives up with its pull.
            let fence = Fence::after(QUIESCE_WITHIN, now.max(state.deadline.instant()));
            self.stop_reading(grant, Arc::new(recalled(request, reason)), fence);
        }
        // All has been read, and whoever is to check it may come late: the source is not kept waiting for that.
        let read =
            |state: &&mut State| state.lease == Some(lease) && matches!(state.stage, Stage::Arrived(_));
        if let Some(state) = self.grants.iter_mut().flatten().find(read) {
            state.lease = None;
            let reads = state.arrived.count();
            self.pulls.release(lease, reads);
        }
        // Else it was released before the peer knew.
        Ok(())
    }
}

/// What a pull learns whose offer is gone.
fn recalled(request: u64, reason: Reason) -> KvError {
    match reason {
        Reason::Revoked => KvError::PeerRevoked { request },
        Reason::Expired => KvError::LeaseExpired { request },
    }
}
