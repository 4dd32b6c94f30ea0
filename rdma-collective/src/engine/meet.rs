//! The meeting of the two ends of a lane: this end's blob, and the first messages over the connected lane.
//!
//! A queue pair may be connected on one side while the other still waits for a blob. So each side sends READY once it
//! is connected, and uses the lane only after it has heard the other's READY.

use std::task::Poll;
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::{Engine, LaneId};
use crate::engine::SetupError;
use crate::link::control::Kind;
use crate::link::{Arrival, Blob, Lane, LinkKind};

/// The first pause before the peer is asked again; each following pause is twice as long.
const ASK_AFTER: Duration = Duration::from_millis(4);

impl Engine {
    /// The blob of a lane that waits for its peer. The caller fills in regions and payload.
    pub(crate) fn blob(&self, lane: LaneId, kind: LinkKind, job: u32) -> Result<Blob, SetupError> {
        let core = self.lock();
        let lane = core.opening(lane).ok_or(SetupError::LaneGone)?;
        Ok(Blob {
            kind,
            job,
            epoch: lane.options().epoch,
            soft: self.context().is_soft(),
            beats: core.beats(),
            endpoint: lane.endpoint(),
            credits: lane.options().credits,
            control_bytes_max: lane.options().control_bytes_max,
            process: core.process(),
            regions: Vec::new(),
            payload: Vec::new(),
        })
    }

    /// Sends READY on a lane that was just connected, and waits for the peer's READY.
    ///
    /// The side that is `first` sends at once, the other side once it has heard that. While the peer's queue pair is
    /// not connected, the first READY is lost and the device retransmits it at long intervals only. So this side sends
    /// another request now and then (at 4 ms, 8 ms, 16 ms …): once one arrives, the peer's device sees the gap and
    /// asks for the READY at once.
    ///
    /// # Errors
    ///
    /// [`SetupError::PeerSilent`] at the deadline, [`SetupError::PeerLost`] if the lane ends first.
    pub(crate) fn greet(&self, lane: LaneId, first: bool, deadline: Deadline) -> Result<(), SetupError> {
        let started = Instant::now();
        let mut greeting = Greeting { first, said: false, heard: false };
        let mut pause = ASK_AFTER;
        while !deadline.expired() {
            let until = deadline.min(Deadline::after(pause));
            let met = self.wait_for(until, |core, _| match core.lane(lane) {
                Some(lane) => greeting.step(lane),
                None => Poll::Ready(Err(SetupError::LaneGone)),
            });
            if let Some(met) = met {
                return met;
            }
            pause *= 2;
            if greeting.said {
                self.lock_with(|core| core.lane(lane).filter(|lane| lane.room() > 2).map(Lane::confirm));
            }
        }
        Err(SetupError::PeerSilent { waited: started.elapsed() })
    }
}

/// The progress of the greeting: whether READY was sent and heard.
struct Greeting {
    first: bool,
    said: bool,
    heard: bool,
}

impl Greeting {
    fn step(&mut self, lane: &mut Lane) -> Poll<Result<(), SetupError>> {
        if !self.heard {
            match hears(lane) {
                Ok(heard) => self.heard = heard,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if !self.said && (self.first || self.heard) {
            self.said = matches!(lane.control(Kind::READY, |_| Ok(())), Ok(true));
        }
        if self.said && self.heard {
            lane.set_quiet(false);
            return Poll::Ready(Ok(()));
        }
        match lane.ended() {
            Some(cause) => Poll::Ready(Err(SetupError::PeerLost { cause })),
            None => Poll::Pending,
        }
    }
}

/// Takes the first message if it is there, and returns whether it is READY. Later messages stay for the lane's user.
fn hears(lane: &mut Lane) -> Result<bool, SetupError> {
    let received = match lane.take() {
        None => return Ok(false),
        Some(Arrival::Imm(..)) => return Err(SetupError::Peer { field: "first message" }),
        Some(Arrival::Control(received)) => received,
    };
    let ready =
        received.message().is_ok_and(|message| message.kind == Kind::READY && message.body.is_empty());
    lane.recycle(received);
    if ready { Ok(true) } else { Err(SetupError::Peer { field: "first message" }) }
}
