//! The link to one peer: its lanes, a mailbox in each direction, and how far the present operation has used them.
//!
//! Executors put and take messages by it, and know of no lane. `link_table` owns the links of a rank.

use rdma_core::{LocalBuf, PeerAccess};

use super::lanes::Lanes;
use super::links::{Lost, violation};
use crate::collective::operation::{Header, LaneFenced};
use crate::engine::{EngineState, LaneId};
use crate::link::codec::{NoRoom, Writer};
use crate::link::control::Kind;
use crate::link::mailbox::{HEADER_BYTES, Inbox, Outbox};
use crate::link::{Lane, LaneFailure, RangeOnRails};
use crate::metrics::{self, Present};

/// The name of a violation: a message that this peer may not send, or not now.
pub(super) const MISPLACED: &str = "a control message that does not belong here";

/// Bytes from which the device reads a message in registered memory, instead of a copy in a send buffer: below, a copy
/// costs less than waiting until the write is done.
const ZERO_COPY_BYTES_MIN: usize = 8 << 10;
/// [`ZERO_COPY_BYTES_MIN`] over TCP, where the other process acknowledges a write, and does so late.
const ZERO_COPY_STREAM_BYTES_MIN: usize = 64 << 10;

/// A link to one peer: its lanes, a mailbox in each direction, and how far the present operation has used them.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) rank: u32,
    pub(crate) lanes: Lanes,
    pub(super) access: PeerAccess,
    pub(super) outbox: Outbox,
    pub(crate) inbox: Inbox,
    /// Messages that earlier operations sent and received. The present operation counts from there.
    pub(crate) sent_before: u64,
    pub(crate) received_before: u64,
    /// Whether the peer is known to be in the present operation: the header of its first message has been compared.
    pub(crate) agreed: bool,
    /// Whether the peer has still to be told of a failure.
    pub(super) untold: bool,
    /// Whether the last zero-copy write of the present operation, or a request behind it, is signalled. Its completion
    /// tells of all.
    asked: bool,
    /// Sequence numbers of the next point-to-point send and receive. Both ends count them alike, apart from
    /// collectives.
    pub(crate) points_sent: u64,
    pub(crate) points_received: u64,
    _present: Present,
}

impl Link {
    /// A link over which nothing has come yet.
    pub(super) fn new(
        (rank, access): (u32, PeerAccess),
        lanes: Lanes,
        mut outbox: Outbox,
        inbox: Inbox,
    ) -> Self {
        if lanes.are_many() {
            outbox.signal_all();
        }
        Self {
            rank,
            lanes,
            access,
            outbox,
            inbox,
            sent_before: 0,
            received_before: 0,
            agreed: false,
            untold: false,
            asked: true,
            points_sent: 0,
            points_received: 0,
            _present: metrics::collective_link(),
        }
    }

    /// Begins an operation: counts its messages from here.
    pub(super) fn begin(&mut self) {
        // The mailboxes count from the first message of the link on.
        (self.sent_before, self.received_before) = (self.outbox.sent(), self.inbox.given_back());
        (self.agreed, self.asked) = (false, true);
    }

    /// Ends the lanes that have failed, if the link can go on over another. What has arrived on them is taken next, and
    /// then [`mend`](Self::mend) called.
    ///
    /// # Errors
    ///
    /// The device refuses to end a lane.
    pub(super) fn fence_failed(&mut self, core: &mut EngineState) -> Result<(), Lost> {
        let fenced = self.lanes.fence_failed(core, self.rank, (&mut self.outbox, &mut self.inbox));
        fenced.map_err(|cause| self.lost(core, self.lanes.first, cause))
    }

    /// Notes that the peer has ended lanes, and has what they have not carried sent over the others. Returns whether a
    /// lane has to be ended here first.
    ///
    /// # Errors
    ///
    /// The peer has told what cannot be; its lane has ended.
    pub(super) fn mend(
        &mut self,
        core: &mut EngineState,
        fenced: Vec<(LaneId, LaneFenced)>,
    ) -> Result<bool, Lost> {
        for news in fenced {
            if !self.lanes.peer_fenced(core, self.rank, news) {
                return Err(self.violation(core, MISPLACED));
            }
        }
        if self.lanes.have_to_fence() {
            return Ok(true);
        }
        let mended = self.lanes.mend(core, (&mut self.outbox, &mut self.inbox));
        mended.map_err(|what| self.violation(core, what)).map(|()| false)
    }

    /// Whether all that was sent has arrived, as far as the peer is there. A link of a single lane is not asked. Later
    /// messages may be lost with a lane.
    pub(super) fn is_settled(&self, core: &mut EngineState) -> bool {
        let is_drained = |id: &LaneId| {
            core.lane(*id).filter(|lane| lane.ended().is_none()).is_none_or(|lane| {
                lane.signal_rest();
                lane.is_drained()
            })
        };
        !self.lanes.are_many() || (!self.lanes.is_paused && self.lanes.open.iter().all(is_drained))
    }

    /// The peer as lost by the end of that lane.
    pub(super) fn lost(&self, core: &mut EngineState, id: LaneId, cause: LaneFailure) -> Lost {
        let lane = core.lane(id).map_or(self.lanes.name, |lane| lane.name());
        Lost { rank: self.rank, lane, cause, away: core.away_from(id) }
    }

    /// Ends the lane of a peer that has sent what the protocol forbids. `what` names the violation.
    pub(crate) fn violation(&self, core: &mut EngineState, what: &str) -> Lost {
        match core.lane(self.lanes.first) {
            Some(lane) => violation(self.rank, lane, what),
            None => Lost { rank: self.rank, lane: self.lanes.name, cause: LaneFailure::Fenced, away: None },
        }
    }

    /// Whether a message of so many bytes is sent from the memory of the operation, which then ends no sooner than the
    /// device has read it.
    pub(crate) fn sends_without_copy(&self, bytes: usize) -> bool {
        bytes
            >= if self.access == PeerAccess::Stream {
                ZERO_COPY_STREAM_BYTES_MIN
            } else {
                ZERO_COPY_BYTES_MIN
            }
    }

    /// The header of the first message that no operation has read; the rank, if it is damaged.
    pub(crate) fn first_unread(&self) -> Option<Result<Header, u32>> {
        let (number, rank) = (self.inbox.given_back(), self.rank);
        self.inbox.arrived(number)?;
        let header = Header::read(&self.inbox.header(number));
        Some(header.map(|header| Header { rank, ..header }).map_err(|_| rank))
    }

    /// Whether message `number` of the present operation has been put.
    pub(crate) fn has_put(&self, number: u64) -> bool {
        self.outbox.sent() - self.sent_before > number
    }

    /// The room for one message; `None` while there is none.
    pub(crate) fn room<'a>(&'a mut self, core: &'a mut EngineState) -> Option<Room<'a>> {
        if self.lanes.is_paused {
            return None;
        }
        // A lane that is gone is no error here: whoever waits looks for ended links, and learns the reason there.
        self.take_returned(core);
        if self.inbox.should_tell() {
            self.tell_freed(core);
        }
        let lane = core.lane(self.lanes.of(self.outbox.sent()))?;
        self.outbox.is_ready(lane).then_some(Room { link: self, lane })
    }

    /// Takes the buffer in which the next message, of `len` bytes, can be made before there is room for it; `None`
    /// while no buffer is free. Give it back with [`stage`](Self::stage).
    pub(crate) fn begin_stage(&mut self, core: &mut EngineState, len: usize) -> Option<LocalBuf> {
        self.take_returned(core);
        self.outbox.begin_stage(len)
    }

    /// Takes back the buffers of completed writes, from the lanes that have carried them.
    fn take_returned(&mut self, core: &mut EngineState) {
        for id in &self.lanes.open {
            if let Some(lane) = core.lane(*id) {
                self.outbox.take_returned(lane);
            }
        }
    }

    /// Makes a buffer of [`begin_stage`](Self::begin_stage) the next message.
    pub(crate) fn stage(&mut self, buffer: LocalBuf) {
        self.outbox.stage(buffer);
    }

    /// Gives back the slots of all messages below `number`; `false` if the peer has to be told and there is no room to
    /// say so now. The peer is told later if the news `may_wait` and the peer has slots left.
    pub(crate) fn give_back(&mut self, core: &mut EngineState, number: u64, may_wait: bool) -> bool {
        if !self.inbox.has_to_tell(number, may_wait) {
            self.inbox.give_back(number);
            return true;
        }
        let Some(lane) = core.lane(self.lanes.first).filter(|_| !self.lanes.is_paused) else { return false };
        // A rank that has closed sends nothing more. It needs no slots, and waiting for room on its lane would never
        // end.
        if lane.room() == 0 && !lane.is_closed() {
            return false;
        }
        // The room was checked first: slots that are given back here but never reported would be lost to the sender.
        self.inbox.give_back(number);
        if !lane.is_closed() {
            lane.note(self.inbox.freed());
        }
        true
    }

    /// Tells the peer of the slots that are given back, unless there is no room for that now.
    pub(super) fn tell_freed(&mut self, core: &mut EngineState) {
        let lane = core.lane(self.lanes.first).filter(|lane| !self.lanes.is_paused && lane.room() > 0);
        lane.into_iter().for_each(|lane| lane.note(self.inbox.freed()));
    }

    /// Sends a control message to the peer; `false` if there is no room for it now.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if the message is longer than the peer receives.
    pub(crate) fn control(
        &self,
        core: &mut EngineState,
        kind: Kind,
        body: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<bool, NoRoom> {
        let lane = core.lane(self.lanes.first).filter(|_| !self.lanes.is_paused);
        lane.map_or(Ok(false), |lane| lane.control(kind, body))
    }

    /// Asks the device for the completion of the last writes from the operation's memory, where no write has asked.
    pub(super) fn ask_for_ranges(&mut self, core: &mut EngineState) {
        if !self.asked {
            // If there is no room for that now, the next call tries again.
            self.asked = core.lane(self.lanes.first).is_some_and(Lane::confirm);
        }
    }

    /// Whether the device still writes from the operation's memory.
    pub(super) fn is_unsent(&self, core: &mut EngineState) -> bool {
        // While the link is paused, messages of a lane that has failed may have to be sent again.
        let reads = |id: &LaneId| core.lane(*id).is_some_and(|lane| lane.reads_ranges());
        self.lanes.is_paused || self.lanes.open.iter().any(reads)
    }
}

/// The room for one message on a link.
pub(crate) struct Room<'a> {
    link: &'a mut Link,
    /// The lane that carries the message.
    lane: &'a mut Lane,
}

impl Room<'_> {
    /// Puts the message that was [staged](Link::stage); `false` if there is none.
    pub(crate) fn put_staged(self, header: Option<&[u8; HEADER_BYTES]>) -> bool {
        self.link.outbox.put_staged(self.lane, header)
    }

    /// Puts one message of `len` bytes that `fill` writes; `false` if it is longer than a slot.
    pub(crate) fn put_with(
        self,
        header: Option<&[u8; HEADER_BYTES]>,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        self.link.outbox.put_with(self.lane, header, len, fill)
    }

    /// Puts a message that the device reads in registered memory; `false` if it is longer than a slot. The completion
    /// of a write that `asks` for one tells of all writes before.
    pub(crate) fn put_range(self, range: RangeOnRails, len: usize, asks: bool) -> bool {
        let Self { link, lane } = self;
        // A later write takes the place of an earlier one that asks: that one's completion does not tell of this. Over
        // several lanes every write asks.
        link.asked = asks || link.lanes.are_many();
        link.outbox.put_range(lane, range, len, asks)
    }
}
