//! The ends of pushes that are done or lost. This file owns `Writing` → `Ended` for a confirmed push, and any stage →
//! `Ended` with the link. Pushes that are given up end in `revoke`.

use std::time::Instant;

use super::{Posted, Pushes, Stage, State, Writing};
use crate::engine::EngineState;
use crate::kv::KvError;
use crate::kv::outcome::Sent;
use crate::link::LaneFailure;

impl State {
    /// The outcome of a push that the peer has confirmed; `None` before.
    pub(super) fn sent(&self, now: Instant) -> Option<Sent> {
        let (Stage::Writing(of) | Stage::Quiescing { of, .. }) = &self.stage else { return None };
        let elapsed = now.saturating_duration_since(of.at);
        let (bytes, writes) = (self.bytes, self.writes);
        // The note is added when the outcome is taken.
        let sent = |corrupt| Sent { note: Vec::new(), bytes, writes, corrupt, elapsed };
        of.confirmed.map(|done| sent(done.corrupt))
    }
}

impl Pushes {
    /// Counts the writes that the lane reports as done. The lane completes writes in posting order, so the oldest
    /// entries of `in_flight` are the ones that are done.
    pub(super) fn count_done(&mut self, core: &mut EngineState, now: Instant) -> bool {
        let Some(done) = self.link.lane(core).map(|lane| lane.ranges_done()) else { return false };
        let (before, mut bytes) = (self.done, 0);
        while self.done < done {
            self.done += 1;
            let Some(Posted { key, len, layer, packed }) = self.in_flight.pop_front() else { continue };
            if packed {
                self.packing.sent();
            }
            bytes += u64::from(len);
            if let Some(state) = self.push_mut(key) {
                state.bytes_done += u64::from(len);
                state.writes_done += 1;
                if let Some(layers) = &mut state.layers {
                    layers.done(layer);
                }
            }
        }
        if done > before {
            self.moved = now;
            self.journal.moved(done - before, bytes, now);
        }
        done > before
    }

    /// Ends the pushes that are done. A push needs both: the peer's confirmation, and the completion of its last
    /// write, because until then the device may still read the blocks (to send again).
    pub(super) fn finish(&mut self, core: &mut EngineState, now: Instant) -> bool {
        let mut ended = 0;
        for state in self.pushes.iter_mut().flatten() {
            let Stage::Writing(Writing { all_posted: Some(last), .. }) = state.stage else { continue };
            let Some(sent) = state.sent(now).filter(|_| self.done >= last) else { continue };
            state.end(Ok(sent));
            ended += 1;
        }
        for _ in 0..ended {
            self.link.unwatch(core);
        }
        ended > 0
    }

    /// Ends every push and offer, and the link with them. The lane is fenced first: only then are the blocks not read
    /// any more, and may be released. If the device refuses, they are quarantined.
    pub(in crate::kv) fn end(&mut self, core: &mut EngineState, cause: LaneFailure, now: Instant) {
        let (peer, lane) = (self.link.peer.clone(), self.link.name);
        if self.link.ended.is_none() {
            self.journal.down(cause.clone());
        }
        let fenced = self.link.end(core, cause.clone());
        self.posting.clear();
        self.unsummed = None;
        for offered in &mut self.offers {
            let request = offered.request();
            let lost = KvError::PeerFailed {
                request,
                peer: peer.clone(),
                lane,
                cause: cause.clone(),
                bytes_outstanding: 0,
                last_progress: self.journal.idle(offered.began(), now),
            };
            offered.lose(
                fenced,
                if fenced { lost } else { KvError::Quarantined { request, peer: peer.clone(), lane } },
            );
        }
        for state in self.pushes.iter_mut().flatten() {
            if matches!(state.stage, Stage::Ended(_)) {
                continue;
            }
            if !fenced {
                state.hold.quarantine();
            }
            let request = state.request;
            let error = match &state.stage {
                _ if !fenced => KvError::Quarantined { request, peer: peer.clone(), lane },
                Stage::Quiescing { cause, .. } => cause.clone(),
                _ => KvError::PeerFailed {
                    request,
                    peer: peer.clone(),
                    lane,
                    cause: cause.clone(),
                    bytes_outstanding: state.bytes - state.bytes_done,
                    last_progress: self.journal.idle(state.started, now),
                },
            };
            // A confirmed push has arrived, even if the completions of its writes never came.
            let sent = state.sent(now).filter(|_| fenced);
            state.end(sent.ok_or(error));
        }
        self.wake(core);
    }
}
