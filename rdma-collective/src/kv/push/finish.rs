//! The ends of pushes: done, late, or lost with the link.

use std::time::Instant;

use super::{Pushes, Stage, State, unwatch};
use crate::comm::Core;
use crate::error::{KvError, LaneFailure};
use crate::kv::prefill::Pushed;

impl State {
    /// What there is to tell once the peer has confirmed.
    fn pushed(&self, now: Instant) -> Option<Pushed> {
        let Stage::Begun { begun, writes, confirmed: Some(done), .. } = &self.stage else { return None };
        let elapsed = now.saturating_duration_since(*begun);
        Some(Pushed { bytes: self.bytes, writes: *writes, corrupt: done.corrupt, elapsed })
    }
}

impl Pushes {
    /// Takes what the lane says of writes that are done.
    pub(super) fn count_done(&mut self, core: &mut Core) -> bool {
        let Some(done) = self.link.lane(core).map(|lane| lane.ranges_done()) else { return false };
        let any = done > self.done;
        while self.done < done {
            self.done += 1;
            let Some((id, len)) = self.in_flight.pop_front() else { continue };
            if let Some(state) = self.pushes.iter_mut().flatten().find(|state| state.id == id) {
                state.bytes_done += u64::from(len);
            }
        }
        any
    }

    /// Ends the pushes that are done, and those that are late.
    pub(super) fn finish(&mut self, core: &mut Core, now: Instant) -> bool {
        let mut ended = 0;
        for place in &mut self.pushes {
            let Some(state) = place else { continue };
            let Stage::Begun { all_posted: Some(last), .. } = state.stage else { continue };
            let Some(pushed) = state.pushed(now).filter(|_| self.done >= last) else { continue };
            state.end(Ok(pushed));
            ended += 1;
            if state.abandoned {
                *place = None;
            }
        }
        for _ in 0..ended {
            unwatch(&self.link, core);
        }
        ended > 0
    }

    /// A push that only waits for a grant ends alone; one that has begun ends with the link, since its writes may
    /// still be under way.
    pub(super) fn expire(&mut self, core: &mut Core, now: Instant) {
        let (peer, lane) = (self.link.peer, self.link.name);
        let mut fence = false;
        for place in &mut self.pushes {
            let Some(state) = place.as_mut().filter(|state| state.deadline.expired_at(now)) else { continue };
            let error = KvError::DeadlineExceeded {
                request: state.request,
                peer,
                lane,
                bytes_outstanding: state.bytes - state.bytes_done,
                waited: now.saturating_duration_since(state.started),
            };
            match state.stage {
                Stage::Ended(_) => continue,
                Stage::Waiting | Stage::Refusing(..) => {}
                Stage::Begun { .. } => {
                    fence = true;
                    // Told now, freed when the lane is fenced.
                    state.stage = Stage::Ended(Err(error));
                    continue;
                }
            }
            state.end(Err(error));
            unwatch(&self.link, core);
            if state.abandoned {
                *place = None;
            }
        }
        if fence {
            self.end(core, LaneFailure::Fenced, now);
        }
    }

    /// Ends every push and the link with it.
    pub(in crate::kv) fn end(&mut self, core: &mut Core, cause: LaneFailure, now: Instant) {
        let (peer, lane) = (self.link.peer, self.link.name);
        let fenced = self.link.end(core, cause.clone());
        self.posting.clear();
        for place in &mut self.pushes {
            let Some(state) = place else { continue };
            if !fenced {
                state.hold.quarantine();
            }
            let (request, bytes_outstanding) = (state.request, state.bytes - state.bytes_done);
            let error = KvError::PeerFailed { request, peer, lane, cause: cause.clone(), bytes_outstanding };
            // What the peer has confirmed has arrived, whatever became of its acknowledgements.
            let outcome = state.pushed(now).ok_or(error);
            state.end(outcome);
            if state.abandoned {
                *place = None;
            }
        }
    }
}
