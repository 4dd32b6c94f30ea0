//! Transfers that are taken back. This file owns `Filling` → `Revoking` (revoked, late, or stopped by the peer) and
//! `Revoking` → `Ended`.
//!
//! Revocation has two phases. First the peer is asked to stop (REVOKE); its answer (QUIESCED) has the number of
//! writes it has posted, and the transfer ends when as many have arrived. Only when no answer comes by the fence is
//! the lane ended, which takes the link with it.

use std::sync::Arc;
use std::time::Instant;

use rdma_core::Deadline;

use super::Receives;
use super::state::{Revocation, Stage, State};
use crate::engine::EngineState;
use crate::kv::KvError;
use crate::kv::fence::{Fence, QUIESCE_WITHIN};
use crate::kv::message::{self, Quiesced, Reason, Revoke, Withdraw};
use crate::link::LaneFailure;
use crate::link::imm::TRANSFERS_MAX;

impl Receives {
    /// Takes a transfer back. The transfer ends when no byte can land any more. The lane is fenced at `until`, or
    /// after 5 s.
    pub(super) fn revoke(&mut self, core: &mut EngineState, id: u64, until: Option<Deadline>, now: Instant) {
        let fence = Fence::by(until, now);
        let layout = self.pool.layout().clone();
        let Some(Some(state)) = self.slot(id) else { return };
        let cause = Arc::new(KvError::Revoked { request: state.grant.request });
        if self.give_up_pull(core, id, Arc::clone(&cause), fence) {
            return;
        }
        let Some(Some(state)) = self.slot(id) else { return };
        match &mut state.stage {
            // A transfer that has arrived in full is kept, since no byte of it is under way. Checking, and telling
            // the peer, must be over by the new deadline.
            Stage::Unchecked(by) => {
                *by = until.map_or(*by, |until| until.instant().min(*by));
                state.deadline = until.map_or(state.deadline, |until| state.deadline.min(until));
            }
            Stage::Confirming(_, by) => *by = until.map_or(*by, |until| until.instant().min(*by)),
            Stage::Ended(_) => {}
            Stage::Revoking(revoking) => {
                until.into_iter().for_each(|until| revoking.fence.no_later_than(until.instant()));
            }
            Stage::Filling if state.told > 0 => state.begin_to_revoke(Reason::Revoked, cause, fence),
            Stage::Filling => {
                let withdraw = Withdraw { request: state.grant.request, reason: Reason::Revoked };
                state.fail(cause, &layout);
                self.link.unwatch(core);
                self.withdraw(withdraw);
            }
        }
    }

    /// Has the peer told that a grant ended before it was sent. Of many, some are not told: their pushes wait until
    /// their own deadlines.
    fn withdraw(&mut self, withdraw: Withdraw) {
        if self.withdrawn.len() < TRANSFERS_MAX {
            self.withdrawn.push_back(withdraw);
        }
    }

    /// Sends REVOKE for each transfer in `Revoking` that has not been announced as stopped, and WITHDRAW for each grant
    /// that ended before it was sent.
    pub(super) fn send_revocations(&mut self, core: &mut EngineState) {
        while let Some(withdraw) = self.withdrawn.front() {
            if !self.link.send(core, message::WITHDRAW, |body| withdraw.write(body)) {
                break;
            }
            self.withdrawn.pop_front();
        }
        for state in self.grants.iter_mut().flatten() {
            let grant = state.grant.grant;
            if let Stage::Revoking(revoking) = &mut state.stage
                && !revoking.told
            {
                let revoke = Revoke { grant, reason: revoking.reason };
                revoking.told = self.link.send(core, message::REVOKE, |body| revoke.write(body));
            }
        }
    }

    /// Handles QUIESCED: the peer has stopped, whether or not it was asked.
    pub(super) fn quiesced(&mut self, quiesced: Quiesced, now: Instant) -> Result<(), &'static str> {
        if quiesced.grant >= self.next_grant {
            return Err("an answer to a revocation of a grant that was not made");
        }
        // A grant that has ended was revoked by both sides at once, or was done before the peer knew.
        let Some(Some(state)) = self.slot(quiesced.grant) else { return Ok(()) };
        if state.pulls() {
            return Err("an answer to a revocation for a pull");
        }
        if matches!(state.stage, Stage::Filling) {
            let cause =
                Arc::new(KvError::PeerRevoked { request: state.grant.request, peer: state.peer.0.clone() });
            state.begin_to_revoke(quiesced.reason, cause, Fence::after(QUIESCE_WITHIN, now));
        }
        match &mut state.stage {
            Stage::Revoking(revoking) if revoking.writes.is_none() => {
                // The peer has stopped already, so REVOKE is not sent any more.
                revoking.told = true;
                revoking.writes = Some(quiesced.writes);
                Ok(())
            }
            Stage::Revoking(_) => Err("a grant that was given up twice"),
            _ => Ok(()),
        }
    }

    /// Ends the transfers in `Revoking` of which all posted writes have arrived. QUIESCED alone is not enough,
    /// because no arrival is inferred from another message's.
    pub(super) fn finish_revoked(&mut self, core: &mut EngineState) -> bool {
        let layout = self.pool.layout().clone();
        let mut any = false;
        for state in self.grants.iter_mut().flatten() {
            let Stage::Revoking(Revocation { writes: Some(writes), cause, .. }) = &state.stage else {
                continue;
            };
            if state.arrived.count() < *writes {
                continue;
            }
            let (cause, reads) = (Arc::clone(cause), *writes);
            // The next push may write into these slots from now on.
            self.unpacked.extend(state.to_tell(true));
            state.fail(cause, &layout);
            if let Some(lease) = state.lease() {
                self.pulls.release(lease, reads);
            }
            self.link.unwatch(core);
            any = true;
        }
        any
    }

    /// Expires transfers. A grant that is late goes to `Revoking`; if the peer does not stop by the fence, the link
    /// ends, because only then is it certain that no byte lands any more. A grant that the peer was never told of
    /// ends alone.
    ///
    /// Returns whether a transfer has changed.
    pub(super) fn expire(&mut self, core: &mut EngineState, known: Instant, now: Instant) -> bool {
        let layout = self.pool.layout().clone();
        let (peer, lane) = (self.link.peer.clone(), self.link.name);
        let moved = self.link.heard_at(core).map_or(self.moved, |heard| heard.max(self.moved));
        let mut fence_now = false;
        let mut any = self.expire_pulls(core, known, now);
        // A transfer that has arrived in full is not late, however late it is looked at; but the peer must take the
        // confirmation in time.
        let late = |state: &&mut State| {
            // No write can come for a grant that the peer was not told of, so the clock decides; a pull needs no grant
            // message, so its reads may be under way.
            let until = if state.told == 0 && !state.pulls() { now } else { known };
            state.due().is_some_and(|due| due <= until)
        };
        for state in self.grants.iter_mut().flatten().filter(late) {
            let pulls = state.pulls();
            match &mut state.stage {
                // `expire_pulls` handles pulls, because it knows which reads are under way.
                Stage::Filling if pulls => continue,
                Stage::Filling => {}
                Stage::Revoking(revoking) => {
                    revoking.unanswered = revoking.fence.is_due(known, moved);
                    fence_now |= revoking.unanswered;
                    continue;
                }
                Stage::Confirming(..) => {
                    fence_now = true;
                    continue;
                }
                Stage::Unchecked(_) | Stage::Ended(_) => continue,
            }
            any = true;
            let request = state.grant.request;
            let cause = Arc::new(if state.told > 0 && state.begin.is_none() {
                KvError::GrantExpired { request, peer: peer.clone() }
            } else {
                KvError::DeadlineExceeded {
                    request,
                    peer: peer.clone(),
                    lane,
                    bytes_outstanding: state.bytes_outstanding(),
                    last_progress: self.journal.idle(state.granted, now),
                    waited: now.saturating_duration_since(state.granted),
                }
            });
            if state.told > 0 {
                state.begin_to_revoke(Reason::Expired, cause, Fence::after(QUIESCE_WITHIN, now));
                continue;
            }
            state.fail(cause, &layout);
            self.link.unwatch(core);
        }
        if fence_now {
            self.link.warn_unanswered();
            self.end(core, LaneFailure::Fenced);
        }
        any || fence_now
    }
}

impl State {
    /// Goes to `Revoking`. REVOKE is sent in the same drive if the lane has room.
    fn begin_to_revoke(&mut self, reason: Reason, cause: Arc<KvError>, fence: Fence) {
        self.stage = Stage::Revoking(Revocation::new(reason, cause, fence));
    }
}
