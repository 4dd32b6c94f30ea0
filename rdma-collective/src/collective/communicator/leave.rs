//! Closing a communicator in good order.
//!
//! The order matters: pending operations finish first, then all messages are acknowledged and the peers are told
//! goodbye, and only then are the lanes fenced. `abort` owns the other end, which waits for nothing.

use std::task::Poll;
use std::time::Instant;

use rdma_core::Deadline;

use super::{Communicator, FENCE_WITHIN, Links};
use crate::collective::{AbortReason, CollectiveError};
use crate::engine::{LaneId, Service};

impl Communicator {
    /// Closes the communicator: waits until all messages of this rank have arrived, and tells the linked ranks.
    ///
    /// Operations that are still pending finish first. The other ranks need not close at the same time: an operation of
    /// theirs completes if it needs nothing more from this rank.
    ///
    /// # Errors
    ///
    /// - [`CollectiveError::Ended`]: the communicator had failed before.
    /// - [`CollectiveError::Engine`]: the device refuses to end a lane.
    /// - [`CollectiveError::Aborted`] with [`Mismatch`](AbortReason::Mismatch): another rank had called something else
    ///   in an operation in which this rank only sent, such as the root of a broadcast.
    /// - [`CollectiveError::Unsent`]: the deadline has passed. The communicator is closed all the same.
    pub fn close(mut self, deadline: Deadline) -> Result<(), CollectiveError> {
        self.shared.engine.check_process()?;
        match (self.leave(deadline), self.shared.lock().ended()) {
            // This error comes first, whatever failed before: the device may still write to the memory of that lane.
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
        // A deferred operation is driven by its caller, who closes now; the engine must finish it.
        shared.hand_to_engine();
        let idle = shared
            .engine
            .wait_for(deadline, |_, _| if shared.lock().is_idle() { Poll::Ready(()) } else { Poll::Pending });
        if idle.is_none() {
            shared.lock().end(&CollectiveError::Unsent);
        }
        if self.lanes_of_link() > 1 {
            self.settle_links(deadline);
        }
        let known = self.check_last_calls();
        self.tell_of_losses();
        let mut lanes: Vec<LaneId> = shared.lock().links.iter().flat_map(Links::lanes).collect();
        let others = shared.host.iter().flat_map(|host| host.lanes());
        lanes.extend(others.filter(|lane| !lanes.contains(lane)).collect::<Vec<_>>());
        if lanes.is_empty() {
            shared.lock().announcer.closed();
            return Ok(());
        }
        // The goodbye goes before the fence: without it, the end of this rank would look like its loss to the peers.
        let drained = shared.engine.say_goodbye(&lanes, deadline);
        // Once more: of two ranks that leave at once, the one whose messages arrive last has those of the other.
        let known = known.and_then(|()| self.check_last_calls());
        let fenced = shared.engine.lock_with(|core| {
            // Every lane is fenced before an error is returned, so that one refusal does not keep the others open.
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

    /// Waits until all messages have arrived, unless the communicator has failed. A lane that fails after the goodbye
    /// takes its messages with it.
    fn settle_links(&self, deadline: Deadline) {
        let shared = &self.shared;
        let settled = shared.engine.wait_for(deadline, |core, _| {
            let state = shared.lock();
            let settled = match &state.links {
                Some(links) if state.ended().is_none() && links.abort.is_none() => links.are_settled(core),
                _ => true,
            };
            if settled { Poll::Ready(()) } else { Poll::Pending }
        });
        if settled.is_none() {
            crate::log::debug!("not all messages have arrived before this rank leaves");
        }
    }

    /// Tells the linked ranks of a rank that has died, if this rank knows of one.
    fn tell_of_losses(&self) {
        let shared = &self.shared;
        shared.engine.lock_with(|core| {
            core.catch_up();
            if let Some(links) = &mut shared.lock().links {
                links.tell_of_losses(core, (self.rank, shared.gate.sequence()));
            }
        });
    }

    /// Fails if another rank has called something else in an operation that has ended here.
    ///
    /// A root that only sends does not read the messages of its peers in that operation; a later one compares them.
    /// After the last operation there is no later one, so a mismatch in it would go unnoticed.
    fn check_last_calls(&self) -> Result<(), CollectiveError> {
        let shared = &self.shared;
        shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            // Otherwise the operation that failed has reported it.
            if state.ended().is_some() {
                return Ok(());
            }
            let next = shared.gate.sequence();
            let Some(links) = &mut state.links else { return Ok(()) };
            let error = match links.abort {
                Some(abort) if abort.reason == AbortReason::Mismatch && abort.sequence < next => {
                    links.error_of(abort, self.rank, None, None)
                }
                Some(_) => return Ok(()),
                None => {
                    // A lane that ends meanwhile has done its part.
                    let _ = links.take_arrivals(core);
                    let host = shared.host.as_deref().map_or(Ok(()), |host| host.check_ended(next));
                    let checked = host.and_then(|()| links.check_unread(next));
                    let Err(wrong) = checked else { return Ok(()) };
                    links.tell_wrong(core, (self.rank, next), wrong)
                }
            };
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
            crate::log::warn!(
                rank, %error,
                "a communicator was dropped and could not close in good order; \
                 call `close` to handle the error"
            );
        }
    }
}
