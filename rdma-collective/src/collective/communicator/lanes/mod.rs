//! The lanes of one link: queue pairs side by side, over which the messages of the link are striped.
//!
//! All lanes of a link write into one mailbox. A slot and its turn name a message, so the order of arrival between
//! lanes does not matter. Whatever must stay in order (control messages, and the counts of slots given back) goes over
//! the first lane that lives. A lane that fails costs time, and the link goes on over the others: `failover`.

mod failover;
mod lost;

use std::time::Instant;

use rdma_core::{Deadline, PeerAccess};

use self::failover::{Event, Failover, Wires};
pub use self::lost::LostLane;
use super::CommunicatorOptions;
use super::links::FENCE_WITHIN;
use crate::collective::CommunicatorError;
use crate::collective::operation::{LANE_FENCED, LaneFenced};
use crate::engine::{Engine, EngineError, EngineState, LaneId, SetupError};
use crate::link::mailbox::{Inbox, Outbox};
use crate::link::{Blob, ConnectOverrides, Lane, LaneFailure, LaneName, LaneOptions, Unsent};

/// Lanes that a link can have, at most.
pub(crate) const LANES_MAX: u8 = 8;

/// The lanes of one link, connected.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// The lane of control messages: the first of `open`.
    pub(crate) first: LaneId,
    /// The name of `first`.
    pub(crate) name: LaneName,
    /// The lanes that carry messages, at least one.
    pub(crate) open: Vec<LaneId>,
    /// All lanes, in the same order at both ends. Those that are over are gone from the engine.
    pub(crate) all: Vec<LaneId>,
    failover: Failover<Unsent>,
    /// Why lanes have failed, each with its number.
    lost: Vec<(usize, String)>,
    /// Whether the link sends nothing, because a lane of it has failed and is not over.
    pub(crate) is_paused: bool,
}

impl Lanes {
    /// The number of lanes of each link: as many on each rail as the options say.
    pub(super) fn count(engine: &Engine, options: &CommunicatorOptions) -> u8 {
        // The cast keeps the value: an engine has at most 8 rails.
        options.lanes.saturating_mul(engine.contexts().len() as u8)
    }

    /// Opens `count` lanes, on the rails of the engine in turn. If one cannot be opened, the others are fenced.
    pub(super) fn open(engine: &Engine, count: u8, options: &LaneOptions) -> Result<Vec<LaneId>, SetupError> {
        let mut opened = Vec::with_capacity(count.into());
        let rails = engine.contexts().len();
        for number in 0..usize::from(count) {
            match engine.open_lane(number % rails, options.clone()) {
                Ok(lane) => opened.push(lane),
                Err(error) => {
                    fence_unused(&mut engine.lock(), &opened, Deadline::after(FENCE_WITHIN));
                    return Err(error);
                }
            }
        }
        Ok(opened)
    }

    /// Connects opened lanes to those that `peers` describe, in the same order, for messages of `outbox`. The second
    /// value is how this process reaches the peer's memory.
    pub(super) fn connect(
        core: &mut EngineState,
        (all, outbox): (Vec<LaneId>, &Outbox),
        (rank, peers): (u32, &[Blob]),
        overrides: ConnectOverrides,
    ) -> Result<(Self, PeerAccess), CommunicatorError> {
        let (Some(&first), true) = (all.first(), all.len() == peers.len()) else {
            return Err(CommunicatorError::Introduction { rank });
        };
        for (id, peer) in all.iter().zip(peers) {
            let [slots] = peer.regions[..] else { return Err(CommunicatorError::Introduction { rank }) };
            outbox.check(slots)?;
            core.connect_lane_as(*id, peer, Instant::now(), overrides)?;
            core.lane(*id).into_iter().for_each(|lane| lane.lead_to(slots));
        }
        let access = core.peer_access(first)?;
        let name = core.lane(first).ok_or(SetupError::LaneGone)?.name();
        for id in all.iter().filter(|_| all.len() > 1) {
            core.lane(*id).into_iter().for_each(|lane| lane.set_one_of_many());
        }
        let failover = Failover::new(all.len());
        Ok((
            Self { first, name, open: all.clone(), all, failover, lost: Vec::new(), is_paused: false },
            access,
        ))
    }

    /// The lane of message `number`.
    pub(super) fn of(&self, number: u64) -> LaneId {
        match &self.open[..] {
            [] | [_] => self.first,
            open => open[(number % open.len() as u64) as usize],
        }
    }

    /// Whether the link had several lanes at first.
    pub(super) fn are_many(&self) -> bool {
        self.all.len() > 1
    }

    /// Fences the lanes that have failed, if another is left. What has arrived on them must be taken next, and then
    /// [`mend`](Self::mend) called.
    ///
    /// # Errors
    ///
    /// The device refuses to end a lane, so that nothing may be sent again.
    pub(super) fn fence_failed(
        &mut self,
        core: &mut EngineState,
        rank: u32,
        mailbox: (&mut Outbox, &mut Inbox),
    ) -> Result<(), LaneFailure> {
        let is_up = |id: &&LaneId| core.lane(**id).is_some_and(|lane| lane.ended().is_none());
        let up = self.open.iter().filter(is_up).count();
        if up == self.open.len() && !self.failover.has_to_fence() {
            return Ok(());
        }
        let open: Vec<usize> = self.failover.open().filter(|_| up > 0).collect();
        for number in open {
            let lane = self.all.get(number).and_then(|id| core.lane(*id));
            let Some(cause) = lane.and_then(|lane| lane.ended()).filter(is_of_lane) else { continue };
            self.failover.take(number, Event::Failed);
            self.note_end(core, rank, (number, &cause.to_string()));
        }
        let next = self.failover.open().next().and_then(|number| self.all.get(number).copied());
        let Self { all, failover, .. } = self;
        let mut wires = LinkWires { core, mailbox, all, next };
        failover.fence(&mut wires).map_err(|error| LaneFailure::Device(error.to_string().into()))?;
        self.look_at_lives(core);
        Ok(())
    }

    /// Notes that the peer has fenced its end of a lane; `false` if it cannot have. The message has come over another
    /// lane than that.
    pub(super) fn peer_fenced(
        &mut self,
        core: &mut EngineState,
        rank: u32,
        (carrier, told): (LaneId, LaneFenced),
    ) -> bool {
        let LaneFenced { lane, taken } = told;
        let number = usize::from(lane);
        if self.all.get(number).is_none_or(|id| *id == carrier) {
            return false;
        }
        let was_open = self.failover.open().any(|open| open == number);
        let can_be = self.failover.take(number, Event::PeerFenced(taken));
        if can_be && was_open {
            self.note_end(core, rank, (number, "the peer has ended it"));
        }
        can_be
    }

    /// Whether a lane has to be fenced, because the peer has told so.
    pub(super) fn have_to_fence(&self) -> bool {
        self.failover.has_to_fence()
    }

    /// Tells the peer of the ends that are fenced, and sends again what has not arrived.
    ///
    /// # Errors
    ///
    /// The peer cannot have taken as many messages as it tells.
    pub(super) fn mend(
        &mut self,
        core: &mut EngineState,
        mailbox: (&mut Outbox, &mut Inbox),
    ) -> Result<(), &'static str> {
        if !self.is_paused {
            return Ok(());
        }
        // A peer that has closed has sent all that it had to send, and needs nothing more.
        if self.open.iter().all(|id| core.lane(*id).is_none_or(|lane| lane.is_closed())) {
            self.is_paused = false;
            return Ok(());
        }
        let Self { all, failover, .. } = self;
        let mended = failover.mend(&mut LinkWires { core, mailbox, all, next: None });
        self.look_at_lives(core);
        mended.map_err(|_| "a count of messages that cannot have arrived")
    }

    /// Notes which lanes are left, and whether the link may send.
    fn look_at_lives(&mut self, core: &mut EngineState) {
        self.is_paused = !self.failover.is_settled();
        let open: Vec<LaneId> =
            self.failover.open().filter_map(|number| self.all.get(number).copied()).collect();
        if let Some(&first) = open.first() {
            self.first = first;
            self.name = core.lane(first).map_or(self.name, |lane| lane.name());
            self.open = open;
        }
    }

    /// The lanes that have failed, each with its number and the reason.
    pub(super) fn lost(&self) -> &[(usize, String)] {
        &self.lost
    }

    /// Notes and logs the end of a lane, and what goes on.
    fn note_end(&mut self, core: &mut EngineState, rank: u32, (number, cause): (usize, &str)) {
        self.lost.push((number, cause.to_owned()));
        let name = self.all.get(number).and_then(|id| core.lane(*id)).map_or(self.name, |lane| lane.name());
        let (left, all) = (self.failover.open().count(), self.all.len());
        crate::log::warn!(
            "{name} to rank {rank} has failed: {cause}. The link goes on over {left} of {all} lanes, and sends again what \
             has not arrived"
        );
    }
}

/// Whether a failure ends the lane alone, and not the link.
pub(super) fn is_of_lane(cause: &LaneFailure) -> bool {
    matches!(cause, LaneFailure::Request(_) | LaneFailure::Silent { .. } | LaneFailure::Refused(_))
}

/// The lanes and the mailbox of a link, for its failover.
struct LinkWires<'a> {
    core: &'a mut EngineState,
    mailbox: (&'a mut Outbox, &'a mut Inbox),
    all: &'a [LaneId],
    /// The lane that watches the peer's process after a fence.
    next: Option<LaneId>,
}

impl LinkWires<'_> {
    fn lane(&mut self, number: usize) -> Option<&mut Lane> {
        self.core.lane(*self.all.get(number)?)
    }
}

impl Wires for LinkWires<'_> {
    type Item = Unsent;
    type Error = EngineError;

    fn fence(&mut self, lane: usize) -> Result<(), EngineError> {
        let Some(&id) = self.all.get(lane) else { return Ok(()) };
        if let Some(next) = self.next {
            self.core.move_watch(id, next);
        }
        self.core.stop_lane(id, Deadline::after(FENCE_WITHIN))
    }

    fn taken(&mut self, lane: usize) -> u64 {
        self.lane(lane).map_or(0, |lane| lane.taken())
    }

    fn tell(&mut self, carrier: usize, lane: usize, taken: u64) -> bool {
        // The cast keeps the value: a link has at most 8 lanes.
        let told = LaneFenced { lane: lane as u8, taken };
        let Some(carrier) = self.lane(carrier) else { return false };
        carrier.control(LANE_FENCED, |body| told.write(body)) == Ok(true)
    }

    fn unsent(&mut self, lane: usize) -> (u64, Vec<Unsent>) {
        let Some(&id) = self.all.get(lane) else { return (0, Vec::new()) };
        let Some(lane) = self.core.lane(id) else { return (0, Vec::new()) };
        self.mailbox.0.take_returned(lane);
        let unsent = (lane.sent(), lane.take_unsent());
        // The lane has no queue pair any more, so that nothing can be refused.
        let _ = self.core.fence_lane(id, Deadline::after(FENCE_WITHIN));
        unsent
    }

    fn free(&mut self, item: Unsent) {
        if let Unsent::Message(_, Some(buffer)) = item {
            self.mailbox.0.take_back(buffer);
        }
    }

    fn repeat(&mut self, carrier: usize, item: Unsent) -> Result<(), Unsent> {
        let Some(&id) = self.all.get(carrier) else { return Err(item) };
        let Some(lane) = self.core.lane(id) else { return Err(item) };
        if lane.is_closed() {
            // A peer that has closed needs nothing more.
            self.free(item);
            return Ok(());
        }
        if lane.room() == 0 {
            return Err(item);
        }
        let (outbox, inbox) = &mut self.mailbox;
        match item {
            Unsent::Message(imm, buffer) => outbox.put_again(lane, imm, buffer),
            Unsent::Control(buffer) => return lane.control_again(buffer).map_err(Unsent::Control),
            // A later count takes the place of the lost one. After a lost heartbeat it does no harm.
            Unsent::Note => lane.note(inbox.freed()),
        }
        Ok(())
    }
}

/// Ends lanes that nothing uses.
pub(super) fn fence_unused(core: &mut EngineState, lanes: &[LaneId], deadline: Deadline) {
    for lane in lanes {
        if let Err(error) = core.fence_lane(*lane, deadline) {
            crate::log::warn!(
                %error,
                "an unused lane could not be closed; its memory stays until the engine is dropped"
            );
        }
    }
}
