//! Pushes that are given up: nothing more is posted, and what was posted is waited for; at last the lane is fenced.
//!
//! Of each grant that was met or revoked the peer is told once that nothing more comes, and how many writes there were.

use std::time::Instant;

use rdma_core::Deadline;

use super::{Pushes, Stage, State, unwatch};
use crate::engine::Core;
use crate::kv::KvError;
use crate::kv::fence::{Fence, QUIESCE_WITHIN};
use crate::kv::message::{self, Quiesced, Reason, Revoke};
use crate::link::LaneFailure;
use crate::link::imm::TRANSFERS_MAX;

impl Pushes {
    /// Gives a push up. It ends when its blocks are not read any more, by fencing the lane at `deadline` if need be.
    pub(in crate::kv) fn cancel(&mut self, core: &mut Core, id: u64, deadline: Deadline) {
        let Some(at) =
            self.pushes.iter().position(|place| place.as_ref().is_some_and(|state| state.id == id))
        else {
            return;
        };
        let Some(Some(state)) = self.pushes.get_mut(at) else { return };
        let error = KvError::Revoked { request: state.request };
        match &mut state.stage {
            Stage::Waiting => {
                state.end(Err(error));
                unwatch(&self.link, core);
            }
            Stage::Ended(_) => {}
            Stage::Begun(_) => self.stop(at, Reason::Revoked, error, Fence::at(deadline.instant())),
            Stage::Quiescing { fence, .. } => fence.no_later_than(deadline.instant()),
        }
    }

    /// Posts nothing more of the push at a place, which has begun.
    pub(super) fn stop(&mut self, at: usize, reason: Reason, cause: KvError, fence: Fence) {
        let Some(Some(state)) = self.pushes.get_mut(at) else { return };
        let Stage::Begun(of) = state.stage else { return };
        let place = self.posting.iter().position(|posting| posting.is_of(state.id));
        let posting = place.and_then(|place| self.posting.remove(place));
        let writes = posting.map_or(of.writes, |posting| posting.posted());
        // A peer that has confirmed all knows.
        if of.confirmed.is_none() {
            self.quiesced.push_back(Quiesced { grant: of.grant, reason, writes });
        }
        // Requests are done in the order of posting: when the last one of all is, those of the push are.
        state.stage = Stage::Quiescing { of, last: self.posted, cause, fence };
    }

    /// The peer wants nothing more of a grant.
    pub(super) fn revoked(
        &mut self,
        core: &mut Core,
        revoke: Revoke,
        now: Instant,
    ) -> Result<(), &'static str> {
        let Revoke { grant, reason } = revoke;
        if grant > self.grants_seen {
            return Err("a revocation of nothing");
        }
        let of_grant = |place: &&mut Option<_>| {
            place.as_ref().is_some_and(|granted: &super::Granted| granted.grant.grant == grant)
        };
        if let Some(granted) = self.grants.iter_mut().find(of_grant).and_then(Option::take) {
            self.grant_gone(core, granted.grant.request, reason, now);
            self.quiesced.push_back(Quiesced { grant, reason, writes: 0 });
        }
        let begun = |state: &State| matches!(&state.stage, Stage::Begun(of) if of.grant == grant);
        let at = self.pushes.iter().position(|place| place.as_ref().is_some_and(begun));
        if let Some((at, Some(state))) = at.and_then(|at| Some((at, self.pushes.get(at)?.as_ref()))) {
            let request = state.request;
            // The peer has a deadline of its own; this side gives up with its push.
            let fence = Fence::after(QUIESCE_WITHIN, now.max(state.deadline.instant()));
            self.stop(at, reason, KvError::PeerRevoked { request }, fence);
        }
        // Else it has been refused or given up already, and the peer was told so.
        if self.quiesced.len() > 2 * TRANSFERS_MAX {
            return Err("more revocations than transfers");
        }
        Ok(())
    }

    /// A grant is gone that no push had met: one that waits for the rest of it is told, or else the next one.
    fn grant_gone(&mut self, core: &mut Core, request: u64, reason: Reason, now: Instant) {
        let waits = |state: &State| state.request == request && matches!(state.stage, Stage::Waiting);
        let waiting = self.pushes.iter_mut().find(|place| place.as_ref().is_some_and(waits));
        let Some(place) = waiting else {
            self.taken_back.note(request, reason, now);
            return;
        };
        if let Some(state) = place {
            state.end(Err(taken_back(request, reason)));
            unwatch(&self.link, core);
        }
        place.take_if(|state| state.abandoned);
    }

    /// Tells the peer of what has stopped.
    pub(super) fn tell_quiesced(&mut self, core: &mut Core) {
        while let Some(quiesced) = self.quiesced.front() {
            if !self.link.tell(core, message::QUIESCED, |body| quiesced.write(body)) {
                return;
            }
            self.quiesced.pop_front();
        }
    }

    /// Ends the pushes whose blocks are not read any more.
    pub(super) fn finish_stopped(&mut self, core: &mut Core, now: Instant) -> bool {
        let mut any = false;
        for place in &mut self.pushes {
            let Some(state) = place else { continue };
            let Stage::Quiescing { last, cause, .. } = &state.stage else { continue };
            if self.done < *last {
                // The peer may have no room to be told in, and what is last may not be signalled.
                if let Some(lane) = self.link.lane(core) {
                    lane.signal_rest();
                }
                continue;
            }
            // What the peer has confirmed was given up too late.
            let outcome = state.pushed(now).ok_or_else(|| cause.clone());
            state.end(outcome);
            unwatch(&self.link, core);
            any = true;
            if state.abandoned {
                *place = None;
            }
        }
        any
    }

    /// A push that only waits for a grant ends alone; one that has begun is given up, and ends with the link when its
    /// writes do not.
    ///
    /// Whether something was given up or has ended.
    pub(super) fn expire(&mut self, core: &mut Core, known: Instant, now: Instant) -> bool {
        let (peer, lane) = (self.link.peer, self.link.name);
        let moved = self.link.heard_at(core).map_or(self.moved, |heard| heard.max(self.moved));
        let (mut any, mut fence_now) = self.expire_offers(core, (known, now), moved);
        for at in 0..self.pushes.len() {
            let Some(Some(state)) = self.pushes.get_mut(at) else { continue };
            if state.due().is_none_or(|due| due > known) {
                continue;
            }
            let error = KvError::DeadlineExceeded {
                request: state.request,
                peer,
                lane,
                bytes_outstanding: state.bytes - state.bytes_done,
                last_progress: self.journal.idle(state.started, now),
                waited: now.saturating_duration_since(state.started),
            };
            match &mut state.stage {
                Stage::Ended(_) => {}
                Stage::Quiescing { fence, .. } => fence_now |= fence.is_due(known, moved),
                Stage::Begun(_) => {
                    any = true;
                    self.stop(at, Reason::Expired, error, Fence::after(QUIESCE_WITHIN, now));
                }
                Stage::Waiting => {
                    any = true;
                    state.end(Err(error));
                    unwatch(&self.link, core);
                    if state.abandoned {
                        self.pushes[at] = None;
                    }
                }
            }
        }
        if fence_now {
            self.link.say_unanswered();
            self.end(core, LaneFailure::Fenced, now);
        }
        any || fence_now
    }
}

/// What a push learns whose grant is gone.
pub(super) fn taken_back(request: u64, reason: Reason) -> KvError {
    match reason {
        Reason::Expired => KvError::GrantExpired { request },
        Reason::Revoked => KvError::PeerRevoked { request },
    }
}
