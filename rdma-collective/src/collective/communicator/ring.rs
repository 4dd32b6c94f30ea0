//! The links of one rank: its two ring neighbours, the table of other links, and what arrives over them.
//!
//! Owns what outlives an operation: headers that arrived early, the first failure, and the wait graph. The executors of
//! `execute` own what an operation does with the mailboxes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rdma_core::error::ReachError;
use rdma_core::{Deadline, PeerAccess};

use super::host::{HostGroup, MESSAGE_BYTES_MAX};
use super::link_table::LinkTable;
use super::wait_graph::{Direction, WaitGraph, WaitingFor};
use crate::collective::operation::{ABORT, Abort, Header, OPERATION, WAITS, WaitReport};
use crate::engine::{EngineState, LaneId};
use crate::link::imm::Imm;
use crate::link::mailbox::{Inbox, Outbox};
use crate::link::{Arrival, Lane, control};
use crate::link::{LaneFailure, LaneName};

/// How long one lane may take to end: 1 s. The engine is locked meanwhile, so nothing else on it makes progress.
pub(super) const FENCE_WITHIN: Duration = Duration::from_secs(1);

/// The links of a communicator: those of the ring, and the windows of its host.
pub(super) type Links = (RingLinks, Option<HostGroup>);

/// The ring's two neighbours, and everything that goes around the ring.
#[derive(Debug)]
pub(crate) struct RingLinks {
    /// The next rank: this rank sends messages to it, and gets free slots back.
    pub(crate) next: Neighbour<Outbox>,
    /// The previous rank: this rank receives messages from it, and gives slots back.
    pub(crate) previous: Neighbour<Inbox>,
    /// Headers of the previous rank that no operation has taken yet.
    ///
    /// The previous rank may be some operations ahead when nothing is reduced, but fewer than there are ranks: its
    /// operation completes only once the rank before it has begun, and so on around the ring.
    pub(crate) ahead: VecDeque<Header>,
    /// The first header beyond that bound. The previous rank does not follow the protocol, or called something else.
    pub(crate) beyond: Option<Header>,
    /// The failure of the earliest operation, found here or reported by a peer. It may belong to an operation that this
    /// rank has not begun; the present operation may still complete then.
    pub(crate) abort: Option<Abort>,
    /// Whether the next and the previous rank must still be told of the failure.
    untold: [bool; 2],
    /// The wait graph.
    wait_graph: WaitGraph,
    /// The two-way links to other ranks.
    pub(crate) link_table: LinkTable,
    /// The deadline of the present operation.
    until: Option<Instant>,
}

/// A peer: its rank, the lane to it, and the mailbox of that lane.
#[derive(Debug)]
pub(crate) struct Neighbour<B> {
    pub(crate) rank: u32,
    pub(crate) lane: LaneId,
    pub(crate) name: LaneName,
    pub(crate) mailbox: B,
    pub(super) access: PeerAccess,
}

/// A peer whose lane has ended, and the reason.
#[derive(Debug, Clone)]
pub(crate) struct Lost {
    pub(crate) rank: u32,
    pub(crate) lane: LaneName,
    pub(crate) cause: LaneFailure,
    /// How long this process did not run before it found the end, if that is the reason: its peers gave it up
    /// meanwhile.
    pub(crate) away: Option<Duration>,
}

impl Lost {
    /// Whether this is a failure, and not an end in good order by either side.
    pub(crate) fn is_loss(&self) -> bool {
        !matches!(self.cause, LaneFailure::Closed | LaneFailure::Fenced)
    }
}

/// Bytes that are copied or reduced at a time. Two such pieces fit the processor's first-level cache until they are
/// reduced. The C library also copies so few bytes without string instructions, which emulators run byte by byte.
pub(crate) const PIECE_BYTES: usize = 8 * 1024;

/// Two buffers, each for a piece or an eager message.
pub(crate) type Scratch = [[u8; MESSAGE_BYTES_MAX]; 2];

pub(super) fn scratch() -> Box<Scratch> {
    Box::new([[0; MESSAGE_BYTES_MAX]; 2])
}

/// The parts of a communicator that an operation uses.
pub(crate) struct CommContext<'a> {
    pub(crate) rank: u32,
    /// Absent when the rank is alone.
    pub(crate) ring: Option<&'a mut RingLinks>,
    /// Absent unless all ranks are on one host.
    pub(crate) host: Option<&'a HostGroup>,
    /// When the engine polls the host's windows again. A message in a window wakes nobody, so it must poll.
    pub(crate) look_at: &'a mut Option<Instant>,
    /// Buffers for two pieces that are reduced.
    pub(crate) scratch: &'a mut Scratch,
}

impl RingLinks {
    /// Links of `rank` over which nothing has come yet, in a ring of `world` ranks.
    pub(super) fn new(
        next: Neighbour<Outbox>,
        previous: Neighbour<Inbox>,
        (rank, world): (u32, u32),
        link_table: LinkTable,
    ) -> Self {
        let ahead = VecDeque::with_capacity(world as usize);
        let wait_graph = WaitGraph::new(rank, [next.rank, previous.rank], world);
        let (beyond, abort, untold) = (None, None, [false; 2]);
        Self { next, previous, ahead, beyond, abort, untold, wait_graph, link_table, until: None }
    }

    /// The lanes to the next and to the previous rank.
    pub(crate) fn lanes(&self) -> [LaneId; 2] {
        [self.next.lane, self.previous.lane]
    }

    /// The lanes to the neighbours and to all linked ranks.
    pub(crate) fn all_lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.lanes().into_iter().chain(self.link_table.lanes())
    }

    /// Starts to check that all peers with a lane are alive.
    pub(crate) fn watch(&self, core: &mut EngineState, now: Instant) {
        for lane in self.all_lanes() {
            if let Some(lane) = core.lane(lane) {
                lane.watch(now);
            }
        }
    }

    /// Puts new links into use. Their lanes send heartbeats from now on, and the present operation may wait for them.
    pub(crate) fn take_links(&mut self, core: &mut EngineState) {
        let now = core.now();
        for (rank, id) in self.link_table.take_links() {
            self.wait_graph.link(rank);
            let Some(lane) = core.lane(id) else { continue };
            lane.set_quiet(false);
            lane.watch(now);
            if let Some(until) = self.until {
                lane.give_up_at(until);
            }
        }
    }

    /// Begins an operation that gives up at `deadline`.
    pub(super) fn give_up_at(&mut self, core: &mut EngineState, deadline: Deadline) {
        let left = deadline.instant().saturating_duration_since(core.now());
        // A wait is reported after half of the time that is left at most, because the report must travel around the
        // ring before the deadlines pass. Otherwise each rank would name its neighbour, and not the late rank.
        self.wait_graph.begin(core.heartbeat().min(left / 2));
        self.until = Some(deadline.instant());
        for lane in self.all_lanes() {
            if let Some(lane) = core.lane(lane) {
                lane.give_up_at(deadline.instant());
            }
        }
    }

    /// Ends the wait for the peers: no operation needs them now.
    pub(crate) fn unwatch(&mut self, core: &mut EngineState) {
        // The report is withdrawn below, or the peers would blame a rank for a wait that is over.
        self.wait_graph.end();
        for lane in self.all_lanes() {
            if let Some(lane) = core.lane(lane) {
                lane.unwatch();
            }
        }
        self.tell_waits(core);
    }

    /// Sorts the arrivals of both neighbours and of all linked ranks.
    ///
    /// # Errors
    ///
    /// A rank that has sent what the protocol forbids; its lane has ended.
    pub(crate) fn take_arrivals(&mut self, core: &mut EngineState) -> Result<(), Lost> {
        let (next, previous) = (self.next.lane, self.previous.lane);
        let neighbours =
            [(Direction::Next, self.next.rank, next), (Direction::Previous, self.previous.rank, previous)];
        for (side, rank, id) in neighbours {
            let Some(lane) = core.lane(id) else { continue };
            while let Some(arrival) = lane.take() {
                // A ring has one direction: free slots come from the next rank only, and messages from the previous
                // one.
                match arrival {
                    Arrival::Imm(Imm::Freed { count }, _) if id == next && self.next.mailbox.freed(count) => {
                    }
                    Arrival::Imm(Imm::Message { slot, turn }, bytes)
                        if id == previous && self.previous.mailbox.announce(slot, turn, bytes) => {}
                    Arrival::Imm(..) => return Err(violation(rank, lane, "an immediate that cannot be")),
                    Arrival::Control(received) => {
                        let told = read_control(lane, received.bytes());
                        // The receive buffer goes back to the lane in any case, also before an error.
                        lane.recycle(received);
                        match told {
                            Some(ControlMessage::Abort(abort)) => self.hear(abort),
                            Some(ControlMessage::Header(header)) if id == previous => self.keep(header),
                            Some(ControlMessage::WaitReport(waits)) => self.wait_graph.hear(side, waits),
                            _ => {
                                let what = "a control message that does not belong here";
                                return Err(violation(rank, lane, what));
                            }
                        }
                    }
                }
            }
        }
        let (wait_graph, mut aborts) = (&mut self.wait_graph, None);
        let taken = self.link_table.take_arrivals(core, |rank, told| match told {
            ControlMessage::WaitReport(waits) => wait_graph.hear_linked(rank, waits),
            ControlMessage::Abort(abort) => first(&mut aborts, abort),
            ControlMessage::Header(_) => {}
        });
        if let Some(abort) = aborts {
            self.hear(abort);
        }
        taken
    }

    /// Keeps a header of the previous rank until its operation takes it.
    pub(crate) fn keep(&mut self, header: Header) {
        // The capacity is the bound above. Without it, a peer could make this rank's memory grow without an end.
        if self.ahead.len() < self.ahead.capacity() {
            self.ahead.push_back(header);
        } else {
            self.beyond.get_or_insert(header);
        }
    }

    /// Notes a failure that this rank has found or a peer has reported, and marks it to be passed on to all peers.
    ///
    /// The failure of an earlier operation replaces that of a later one. Some ranks may still be in the earlier
    /// operation, and the later failure does not end it. They must hear of the earlier one from here, because the
    /// rank that reported it may be gone by then.
    pub(super) fn hear(&mut self, abort: Abort) {
        if self.abort.is_none_or(|known| abort.sequence < known.sequence) {
            self.abort = Some(abort);
            self.untold = [true; 2];
            self.link_table.hear();
        }
    }

    /// Tells all peers of a failure, unless an earlier one is known. [`pass_on`](Self::pass_on) tells those whose lanes
    /// have no room now.
    pub(crate) fn tell(&mut self, core: &mut EngineState, abort: Abort) {
        self.hear(abort);
        self.pass_on(core);
        core.flush();
    }

    /// Tells the failure to the peers that have not been told.
    pub(crate) fn pass_on(&mut self, core: &mut EngineState) {
        let Some(abort) = self.abort else { return };
        for (untold, id) in self.untold.iter_mut().zip([self.next.lane, self.previous.lane]) {
            // A peer that is gone, or whose message cannot be encoded, is not tried again. `Ok(false)` means that the
            // lane is full: only then is there a later attempt. A rank that was given up for its silence can still
            // hear: it may have been stopped, and must learn when it goes on that the others ended without it.
            let lane = core.lane(id).filter(|lane| *untold && lane.can_hear());
            *untold = lane.is_some_and(|lane| lane.last_word(ABORT, |body| abort.write(body)) == Ok(false));
        }
        self.link_table.pass_on(|id| {
            let lane = core.lane(id).filter(|lane| lane.can_hear());
            lane.is_some_and(|lane| lane.last_word(ABORT, |body| abort.write(body)) == Ok(false))
        });
    }

    /// Notes that operation `sequence` waits and has made no progress `since`; peers are told after a while.
    pub(crate) fn wait(
        &mut self,
        core: &mut EngineState,
        sequence: u64,
        awaited: WaitingFor,
        since: Instant,
    ) {
        self.wait_graph.wait(sequence, awaited, since);
        self.tell_waits(core);
    }

    /// The late rank at the end of the chain of waits, for operation `sequence`.
    pub(crate) fn late(&self, sequence: u64, awaited: WaitingFor) -> u32 {
        self.wait_graph.culprit(sequence, awaited)
    }

    /// Sends this rank's wait report to the peers, if it is due.
    pub(super) fn tell_waits(&mut self, core: &mut EngineState) {
        // A known failure already names a culprit; a report beside it would only confuse.
        if self.abort.is_some() {
            self.wait_graph.end();
            return;
        }
        self.wait_graph.update(core.now());
        let Some(waits) = self.wait_graph.report() else { return };
        for (unsent, id) in self.wait_graph.unsent.iter_mut().zip([self.next.lane, self.previous.lane]) {
            let lane = core.lane(id).filter(|lane| *unsent && lane.ended().is_none());
            *unsent = lane.is_some_and(|lane| lane.control(WAITS, |body| waits.write(body)) == Ok(false));
        }
        let link_table = &self.link_table;
        self.wait_graph.tell_linked(|rank| {
            let lane = link_table.link(rank).and_then(|link| core.lane(link.lane));
            lane.filter(|lane| lane.ended().is_none())
                .is_some_and(|lane| lane.control(WAITS, |body| waits.write(body)) == Ok(false))
        });
    }

    /// When a wait report is due if nothing arrives.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.wait_graph.next_deadline()
    }

    /// A peer that has failed; a neighbour first.
    pub(crate) fn lost(&self, core: &mut EngineState) -> Option<Lost> {
        let near = self.ended(core).into_iter().flatten().find(Lost::is_loss);
        near.or_else(|| self.link_table.ended(core).find(Lost::is_loss))
    }

    /// How long this process did not run, if peers have ended meanwhile. An end in good order counts too, because the
    /// peers had to go on without this rank.
    pub(crate) fn left_behind(&self, core: &mut EngineState) -> Option<Duration> {
        let near = self.ended(core).into_iter().flatten().find_map(|lost| lost.away);
        near.or_else(|| self.link_table.ended(core).find_map(|lost| lost.away))
    }

    /// Ends the ring's lane to a rank of this host that has written what the protocol forbids into a window. A rank
    /// that is not a neighbour has no such lane, and is only named.
    pub(crate) fn violation_of(&self, core: &mut EngineState, rank: u32, what: &str) -> Lost {
        let (next, previous) = (&self.next, &self.previous);
        let (of, name) =
            if rank == next.rank { (next.lane, next.name) } else { (previous.lane, previous.name) };
        match core.lane(of).filter(|_| [next.rank, previous.rank].contains(&rank)) {
            Some(lane) => violation(rank, lane, what),
            None => Lost { rank, lane: name, cause: LaneFailure::Violation(what.into()), away: None },
        }
    }

    /// The next and the previous rank, if their lanes have ended; including those that closed in good order.
    ///
    /// An executor must call this **before** it polls for the neighbours' messages. A rank writes its messages before
    /// it exits, so a message that is not there after the end was seen never arrives. In the other order, a message
    /// between the two steps would be missed, and its sender taken for a rank that exited without it.
    pub(crate) fn ended(&self, core: &mut EngineState) -> [Option<Lost>; 2] {
        [self.next.ended(core), self.previous.ended(core)]
    }
}

/// The neighbour to blame, of those that have [ended](RingLinks::ended); `waits` says for which the operation still
/// waits.
///
/// A neighbour that closed in good order has done its part, and is at fault only if the operation waits for it. If
/// the other neighbour has failed, that one is to blame: the first may have closed *because* of the failure.
pub(crate) fn at_fault(ended: [Option<Lost>; 2], waits: [bool; 2]) -> Option<Lost> {
    let matters = |(lost, waits): &(Lost, bool)| *waits || !matches!(lost.cause, LaneFailure::Closed);
    let ended = ended.into_iter().zip(waits).filter_map(|(lost, waits)| Some((lost?, waits)));
    // `false` sorts first: a failure before an end in good order.
    ended.filter(matters).map(|(lost, _)| lost).min_by_key(|lost| !lost.is_loss())
}

impl<B> Neighbour<B> {
    /// This peer as lost, because the system refuses to write to its window.
    pub(crate) fn refused(&self, why: &ReachError) -> Lost {
        let cause = LaneFailure::Device(why.to_string().into());
        Lost { rank: self.rank, lane: self.name, cause, away: None }
    }

    /// Why the lane to this peer has ended; including an end in good order.
    pub(crate) fn ended(&self, core: &mut EngineState) -> Option<Lost> {
        let cause = core.lane(self.lane).map_or(Some(LaneFailure::Fenced), |lane| lane.ended())?;
        Some(Lost { rank: self.rank, lane: self.name, cause, away: core.away_from(self.lane) })
    }
}

/// Keeps the failure of the earlier operation.
fn first(known: &mut Option<Abort>, abort: Abort) {
    if known.is_none_or(|known| abort.sequence < known.sequence) {
        *known = Some(abort);
    }
}

/// A control message of a communicator.
pub(super) enum ControlMessage {
    Abort(Abort),
    Header(Header),
    WaitReport(WaitReport),
}

/// Decodes a control message; `None` if it is malformed or of an unknown kind.
pub(super) fn read_control(lane: &Lane, bytes: &[u8]) -> Option<ControlMessage> {
    let message = control::decode(bytes, lane.name().epoch).ok()?;
    match message.kind {
        ABORT => Abort::read(message.body).ok().map(ControlMessage::Abort),
        OPERATION => Header::read(message.body).ok().map(ControlMessage::Header),
        WAITS => WaitReport::read(message.body).ok().map(ControlMessage::WaitReport),
        _ => None,
    }
}

/// Ends the lane of a peer that has sent what the protocol forbids.
pub(crate) fn violation(rank: u32, lane: &mut Lane, what: &str) -> Lost {
    lane.violation(what);
    let cause = lane.ended().unwrap_or(LaneFailure::Fenced);
    Lost { rank, lane: lane.name(), cause, away: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_lost_is_at_fault_before_who_left_because_of_it() {
        let lane = LaneName { qp_num: rdma_core::QpNum(7), epoch: 0 };
        let ended = |rank, cause| Some(Lost { rank, lane, cause, away: None });
        let dead = || ended(0, LaneFailure::Silent { since: Duration::from_secs(1) });
        let left = || ended(2, LaneFailure::Closed);
        let named = |ended, waits| at_fault(ended, waits).map(|lost| lost.rank);
        for waits in [[true, false], [false, true], [true; 2], [false; 2]] {
            assert_eq!(named([dead(), left()], waits), Some(0));
            assert_eq!(named([left(), dead()], waits), Some(0));
            assert_eq!(named([None, dead()], waits), Some(0));
            assert_eq!(named([left(), None], waits), waits[0].then_some(2));
            assert_eq!(named([None, None], waits), None);
        }
    }
}
