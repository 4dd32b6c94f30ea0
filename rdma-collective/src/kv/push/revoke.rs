//! Pushes that are given up. This file owns `Writing` → `Quiescing` (given up, late, or revoked by the peer),
//! `Quiescing` → `Ended`, and `Waiting` → `Ended` for a push that never met its grant.
//!
//! Nothing more is posted for a push that is given up; the writes that were posted are waited for, and at last the
//! lane is fenced. For each grant that was met or revoked the peer is told once (QUIESCED) that no more writes come,
//! and how many were posted: when as many have arrived, the peer's blocks are safe.

use std::time::Instant;

use rdma_core::Deadline;

use super::{Pushes, Stage, State};
use crate::engine::EngineState;
use crate::kv::fence::{Fence, QUIESCE_WITHIN};
use crate::kv::message::{self, Quiesced, Reason, Revoke};
use crate::kv::{KvError, RequestId};
use crate::link::imm::TRANSFERS_MAX;
use crate::link::{LaneFailure, PeerName};

impl Pushes {
    /// Gives a push up. The push ends when its blocks are not read any more. The lane is fenced at `until`, or
    /// after 5 s.
    pub(super) fn cancel(&mut self, core: &mut EngineState, id: u64, until: Option<Deadline>, now: Instant) {
        let Some(at) =
            self.pushes.iter().position(|place| place.as_ref().is_some_and(|state| state.id() == id))
        else {
            return;
        };
        let Some(Some(state)) = self.pushes.get_mut(at) else { return };
        let error = KvError::Revoked { request: state.request };
        match &mut state.stage {
            Stage::Waiting => {
                state.end(Err(error));
                self.link.unwatch(core);
            }
            Stage::Ended(_) => {}
            Stage::Writing(_) => self.stop(at, Reason::Revoked, error, Fence::by(until, now)),
            Stage::Quiescing { fence, .. } => {
                until.into_iter().for_each(|until| fence.no_later_than(until.instant()));
            }
        }
    }

    /// Stops a push that has begun: it leaves the posting queue first, so that the count in QUIESCED is final.
    pub(super) fn stop(&mut self, at: usize, reason: Reason, cause: KvError, fence: Fence) {
        let Some(Some(state)) = self.pushes.get_mut(at) else { return };
        let Stage::Writing(of) = state.stage else { return };
        let place = self.posting.iter().position(|posting| posting.is_of(state.id()));
        let posting = place.and_then(|place| self.posting.remove(place));
        let writes = posting.map_or(state.writes, |posting| posting.posted());
        // A peer that has confirmed all blocks waits for nothing more.
        if of.confirmed.is_none() {
            self.quiesced.push_back(Quiesced { grant: of.grant, reason, writes });
        }
        self.packing.close(of.grant);
        // `last` is the latest write of the lane, whichever push posted it: writes complete in posting order, so when
        // `last` is done, those of this push are done.
        state.stage = Stage::Quiescing { of, last: self.posted, cause, fence };
    }

    /// Handles a revocation by the peer: no more writes are wanted for the grant.
    pub(super) fn revoked(
        &mut self,
        core: &mut EngineState,
        revoke: Revoke,
        now: Instant,
    ) -> Result<(), &'static str> {
        let Revoke { grant, reason } = revoke;
        if grant > self.grants_seen {
            return Err("a revocation of a grant that was not made");
        }
        let of_grant = |place: &&mut Option<_>| {
            place.as_ref().is_some_and(|granted: &super::IncomingGrant| granted.grant.grant == grant)
        };
        if let Some(granted) = self.grants.iter_mut().find(of_grant).and_then(Option::take) {
            self.grant_gone(core, granted.grant.request, reason, now);
            self.quiesced.push_back(Quiesced { grant, reason, writes: 0 });
        }
        let begun = |state: &State| matches!(&state.stage, Stage::Writing(of) if of.grant == grant);
        let at = self.pushes.iter().position(|place| place.as_ref().is_some_and(begun));
        if let Some((at, Some(state))) = at.and_then(|at| Some((at, self.pushes.get(at)?.as_ref()))) {
            let request = state.request;
            // The peer fences by its own deadline. This side does not fence before the push's own deadline has
            // passed.
            let fence = Fence::after(QUIESCE_WITHIN, now.max(state.deadline.instant()));
            let missing = state.note_missing(self.done).filter(|_| reason == Reason::Expired);
            let revoked = || KvError::PeerRevoked { request, peer: self.link.peer.clone() };
            self.stop(at, reason, missing.unwrap_or_else(revoked), fence);
        }
        // Any other grant was refused or given up already, and the peer has been told.
        if self.quiesced.len() > 2 * TRANSFERS_MAX {
            return Err("more revocations than transfers");
        }
        Ok(())
    }

    /// Handles a revoked grant that no push had met. A push that waits for it ends with the reason; otherwise the
    /// reason is kept for the next push of the request.
    pub(super) fn grant_gone(
        &mut self,
        core: &mut EngineState,
        request: RequestId,
        reason: Reason,
        now: Instant,
    ) {
        let waits = |state: &State| state.request == request && matches!(state.stage, Stage::Waiting);
        let Some(state) = self.pushes.iter_mut().flatten().find(|state| waits(state)) else {
            self.taken_back.note(request, reason, now);
            return;
        };
        state.end(Err(taken_back(request, self.link.peer.clone(), reason)));
        self.link.unwatch(core);
    }

    /// Sends the answers to revocations.
    pub(super) fn send_quiesced(&mut self, core: &mut EngineState) {
        while let Some(quiesced) = self.quiesced.front() {
            if !self.link.send(core, message::QUIESCED, |body| quiesced.write(body)) {
                return;
            }
            self.quiesced.pop_front();
        }
    }

    /// Ends the pushes in `Quiescing` whose posted writes are all done.
    pub(super) fn finish_stopped(&mut self, core: &mut EngineState, now: Instant) -> bool {
        let mut any = false;
        for state in self.pushes.iter_mut().flatten() {
            let Stage::Quiescing { last, cause, .. } = &state.stage else { continue };
            if self.done < *last {
                // The last write may carry no signal, and the message that would follow it may find no room at the
                // peer; so a signal is asked for explicitly.
                if let Some(lane) = self.link.lane(core) {
                    lane.signal_rest();
                }
                continue;
            }
            // A push that the peer has confirmed is done: giving it up came too late.
            let outcome = state.sent(now).ok_or_else(|| cause.clone());
            state.end(outcome);
            self.link.unwatch(core);
            any = true;
        }
        any
    }

    /// Moves the deadlines of pushes and offers that are kept alive.
    pub(super) fn keep_alive(&mut self, core: &mut EngineState, now: Instant) {
        let Some(signs) = self.link.signs(core) else { return };
        for state in self.pushes.iter_mut().flatten().filter(|state| state.look().is_some()) {
            state.keep.renew(&mut state.deadline, signs, now);
        }
        self.offers.iter_mut().for_each(|offered| offered.keep_alive(signs, now));
    }

    /// Expires pushes. A push in `Waiting` ends alone; one that has begun goes to `Quiescing`; one whose fence is due
    /// ends the link.
    ///
    /// Returns whether a push or an offer has changed.
    pub(super) fn expire(&mut self, core: &mut EngineState, known: Instant, now: Instant) -> bool {
        let (peer, lane) = (self.link.peer.clone(), self.link.name);
        let moved = self.link.heard_at(core).map_or(self.moved, |heard| heard.max(self.moved));
        let (mut any, mut fence_now) = self.expire_offers(core, (known, now), moved);
        for at in 0..self.pushes.len() {
            let Some(Some(state)) = self.pushes.get_mut(at) else { continue };
            if state.due().is_none_or(|due| due > known) {
                continue;
            }
            let error = KvError::DeadlineExceeded {
                request: state.request,
                peer: peer.clone(),
                lane,
                bytes_outstanding: state.bytes - state.bytes_done,
                last_progress: self.journal.idle(state.started, now),
                waited: now.saturating_duration_since(state.started),
            };
            let missing = state.note_missing(self.done);
            match &mut state.stage {
                Stage::Ended(_) => {}
                Stage::Quiescing { fence, .. } => fence_now |= fence.is_due(known, moved),
                Stage::Writing(_) => {
                    any = true;
                    let error = missing.unwrap_or(error);
                    self.stop(at, Reason::Expired, error, Fence::after(QUIESCE_WITHIN, now));
                }
                Stage::Waiting => {
                    any = true;
                    state.end(Err(error));
                    self.link.unwatch(core);
                }
            }
        }
        if fence_now {
            self.link.warn_unanswered();
            self.end(core, LaneFailure::Fenced, now);
        }
        any || fence_now
    }
}

/// The error of a push whose grant was taken back.
pub(super) fn taken_back(request: RequestId, peer: PeerName, reason: Reason) -> KvError {
    match reason {
        Reason::Expired => KvError::GrantExpired { request, peer },
        Reason::Revoked => KvError::PeerRevoked { request, peer },
    }
}
