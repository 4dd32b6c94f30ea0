//! The end of a communicator in good order: nothing of it is on its way any more, and its lanes are gone.

use std::task::Poll;
use std::time::Instant;

use rdma_core::Deadline;

use super::{Communicator, FENCE_WITHIN, RingLinks, Unlike};
use crate::collective::operation::{Abort, DAMAGED};
use crate::collective::{AbortReason, CollectiveError};
use crate::engine::{LaneId, Service};

impl Communicator {
    /// Waits until all that this rank has sent has arrived, tells its neighbours that it leaves, and ends.
    ///
    /// The other ranks need not close at the same time: an operation of theirs that needs this rank no more completes.
    /// Operations that are still pending are waited for first.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Ended`] when it had failed before; [`CollectiveError::Engine`] when the device refuses to end
    /// a lane; [`CollectiveError::Aborted`], for a [`Mismatch`](AbortReason::Mismatch), when a rank of this host that only gave was last in
    /// another operation than this one. At the deadline it ends all the same, with [`CollectiveError::Unsent`].
    pub fn close(mut self, deadline: Deadline) -> Result<(), CollectiveError> {
        match (self.leave(deadline), self.shared.lock().ended()) {
            // The memory of a lane that did not end is kept, whatever was before.
            (Err(fence @ CollectiveError::Engine(_)), _) => Err(fence),
            (_, Some(CollectiveError::Ended { first })) if !matches!(*first, CollectiveError::Unsent) => {
                Err(CollectiveError::Ended { first })
            }
            (outcome, _) => outcome,
        }
    }

    fn leave(&mut self, deadline: Deadline) -> Result<(), CollectiveError> {
        self.closed = true;
        let shared = &self.shared;
        shared.hand_to_engine();
        let idle = shared
            .engine
            .wait_for(deadline, |_, _| if shared.lock().is_idle() { Poll::Ready(()) } else { Poll::Pending });
        if idle.is_none() {
            shared.lock().end(&CollectiveError::Unsent);
        }
        let known = self.look_back();
        let mut lanes: Vec<LaneId> = shared.lock().ring.iter().flat_map(RingLinks::all_lanes).collect();
        let others = shared.host.iter().flat_map(|host| host.lanes());
        lanes.extend(others.filter(|lane| !lanes.contains(lane)).collect::<Vec<_>>());
        if lanes.is_empty() {
            shared.lock().announcer.closed();
            return Ok(());
        }
        let drained = shared.engine.say_goodbye(&lanes, deadline);
        let fenced = shared.engine.lock_with(|core| {
            // One that cannot be ended does not keep the others from it.
            let within = deadline.min(Deadline::after(FENCE_WITHIN));
            let fence = |lane: &LaneId| core.fence_lane(*lane, within);
            let fenced: Vec<_> = lanes.iter().map(fence).collect();
            let mut state = shared.lock();
            state.advance(core, Instant::now());
            state.release(core);
            fenced
        });
        fenced.into_iter().collect::<Result<(), _>>()?;
        shared.lock().announcer.closed();
        known?;
        if idle.is_some() && drained { Ok(()) } else { Err(CollectiveError::Unsent) }
    }

    /// Whether ranks of this host that gave in an operation which this one did without gave in the same: no later one finds it.
    fn look_back(&self) -> Result<(), CollectiveError> {
        let shared = &self.shared;
        // What has failed was told.
        let host = shared.host.as_deref().filter(|_| shared.gate.is_open());
        let Some(Err(unlike)) = host.map(|host| host.check_ended()) else { return Ok(()) };
        shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            let Some(ring) = &mut state.ring else { return Ok(()) };
            let (sequence, reporter) = (shared.gate.sequence(), self.rank);
            let (abort, error) = match unlike {
                Unlike::Mismatch { ours, theirs } => {
                    let (sequence, reason) = (ours.sequence, AbortReason::Mismatch);
                    let abort = Abort { sequence, culprit: theirs.rank, reporter, reason };
                    (abort, abort.into_error(reporter, None, None))
                }
                Unlike::Damaged(culprit) => {
                    let reason = AbortReason::PeerFailed;
                    let lost = ring.violation_of(core, culprit, DAMAGED);
                    (Abort { sequence, culprit, reporter, reason }, lost.into_error(None))
                }
            };
            ring.tell(core, abort);
            state.announcer.ended(&error);
            Err(error)
        })
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if !self.closed
            && !self.shared.engine.is_forked()
            && let Err(error) = self.leave(Deadline::after(self.options.linger))
        {
            let rank = self.rank();
            tracing::warn!(rank, %error, "a communicator that was dropped did not end in good order");
        }
    }
}
