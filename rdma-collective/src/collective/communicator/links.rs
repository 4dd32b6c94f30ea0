//! The links of one rank, and what arrives over them: the first failure, the wait graph, and headers that came early.
//!
//! Owns what outlives an operation. `link_table` owns the links themselves; the executors of `execute` own what an
//! operation does with their mailboxes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rdma_core::error::ReachError;
use rdma_core::{Deadline, QpNum};

use super::called::Called;
use super::host::{HostGroup, MESSAGE_BYTES_MAX, WrongMessage};
use super::link_table::LinkTable;
use super::wait_graph::{WaitGraph, WaitingFor};
use crate::collective::call::{is_of_two, mismatch};
use crate::collective::operation::{
    ABORT, Abort, DAMAGED, Header, LANE_FENCED, LaneFenced, OPERATION, WAITS, WaitReport,
};
use crate::collective::{AbortReason, CollectiveError, Interrupted};
use crate::engine::{EngineState, LaneId};
use crate::link::{Lane, LaneFailure, LaneName, Received};

/// How long one lane may take to end: 1 s. The engine is locked meanwhile, so nothing else on it makes progress.
pub(super) const FENCE_WITHIN: Duration = Duration::from_secs(1);

/// The links of one rank, and everything that goes over them between operations.
#[derive(Debug)]
pub(crate) struct Links {
    /// The rank after this one in the ring.
    pub(crate) next: u32,
    /// The rank before this one in the ring.
    pub(crate) previous: u32,
    /// Headers of the previous rank that no operation has taken yet.
    ///
    /// The previous rank may be some operations ahead when nothing is reduced. Of those in which it sends such a header
    /// there are fewer than ranks: each completes only once the rank before it has begun, and so on around the ring.
    pub(crate) ahead: VecDeque<Header>,
    /// The first header beyond that bound. The previous rank does not follow the protocol, or called something else.
    pub(crate) beyond: Option<Header>,
    /// The failure of the earliest operation, found here or reported by a peer. It may belong to an operation that this
    /// rank has not begun; the present operation may still complete then.
    pub(crate) abort: Option<Abort>,
    /// The calls of this rank and another, where this rank has found between operations that they differ.
    differ: Option<[Header; 2]>,
    wait_graph: WaitGraph,
    pub(crate) called: Called,
    pub(crate) table: LinkTable,
    /// The deadline of the present operation.
    until: Option<Instant>,
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
    pub(crate) links: Option<&'a mut Links>,
    /// Absent unless all ranks are on one host.
    pub(crate) host: Option<&'a HostGroup>,
    /// When the engine polls the host's windows again. A message in a window wakes nobody, so it must poll.
    pub(crate) look_at: &'a mut Option<Instant>,
    /// Buffers for two pieces that are reduced.
    pub(crate) scratch: &'a mut Scratch,
}

impl Links {
    /// Links over which nothing has come yet. `table` has the links to the neighbours in the ring.
    pub(super) fn new([next, previous]: [u32; 2], (rank, world): (u32, u32), table: LinkTable) -> Self {
        let ahead = VecDeque::with_capacity(world as usize);
        let mut wait_graph = WaitGraph::new(rank, world);
        table.links().for_each(|link| wait_graph.link(link.rank));
        let called = Called::default();
        let (beyond, abort, differ, until) = (None, None, None, None);
        Self { next, previous, ahead, beyond, abort, differ, wait_graph, called, table, until }
    }

    /// The lanes to all linked ranks.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.table.lanes()
    }

    /// Starts to check that all peers with a lane are alive.
    pub(crate) fn watch(&self, core: &mut EngineState, now: Instant) {
        for lane in self.lanes() {
            if let Some(lane) = core.lane(lane) {
                lane.watch(now);
            }
        }
    }

    /// Puts new links into use. Their lanes send heartbeats from now on, and the present operation may wait for them.
    pub(crate) fn take_links(&mut self, core: &mut EngineState) {
        let now = core.now();
        let ranks = self.table.take_links();
        ranks.iter().for_each(|rank| self.wait_graph.link(*rank));
        let linked = ranks.into_iter().filter_map(|rank| self.table.link(rank));
        for id in linked.flat_map(|link| &link.lanes.all) {
            let Some(lane) = core.lane(*id) else { continue };
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
        // A wait is reported after half of the time that is left at most, because the report must travel from
        // link to link before the deadlines pass. Otherwise each rank would name its peer, and not the late rank.
        self.wait_graph.begin(core.heartbeat().min(left / 2));
        self.until = Some(deadline.instant());
        for lane in self.lanes() {
            if let Some(lane) = core.lane(lane) {
                lane.give_up_at(deadline.instant());
            }
        }
    }

    /// Ends the wait for the peers: no operation needs them now.
    pub(crate) fn unwatch(&mut self, core: &mut EngineState) {
        // The report is withdrawn below, or the peers would blame a rank for a wait that is over.
        self.wait_graph.end();
        for lane in self.lanes() {
            if let Some(lane) = core.lane(lane) {
                lane.unwatch();
            }
        }
        self.tell_waits(core);
    }

    /// Sorts what has arrived from all linked ranks.
    ///
    /// # Errors
    ///
    /// A rank that has sent what the protocol forbids; its lane has ended.
    pub(crate) fn take_arrivals(&mut self, core: &mut EngineState) -> Result<(), Lost> {
        let Self { previous, ahead, beyond, wait_graph, table, .. } = self;
        let mut aborts = None;
        let taken = table.take_arrivals(core, |rank, told| {
            match told {
                ControlMessage::WaitReport(waits) => wait_graph.hear(rank, waits),
                ControlMessage::Abort(abort) => first(&mut aborts, abort),
                ControlMessage::Header(header) if rank == *previous => keep(ahead, beyond, header),
                // Headers go around the ring, so only the previous rank sends them. News of lanes is for links that
                // have several.
                ControlMessage::Header(_) | ControlMessage::LaneFenced(_) => return false,
            }
            true
        });
        if let Some(abort) = aborts {
            self.hear(abort);
        }
        taken
    }

    /// Takes what peers have sent and tells all of one that is lost, as a failure of operation `sequence` that rank
    /// `reporter`, which is this one, has found. Returns whether one is lost: a rank that leaves, or ends, because of
    /// another one would be taken for the one at fault if it said nothing.
    pub(super) fn tell_of_losses(
        &mut self,
        core: &mut EngineState,
        (reporter, sequence): (u32, u64),
    ) -> bool {
        let taken = self.take_arrivals(core);
        let Some(lost) = taken.err().or_else(|| self.lost(core)) else { return false };
        let (culprit, reason) = (lost.culprit(reporter), AbortReason::PeerFailed);
        self.tell(core, Abort { sequence, culprit, reporter, reason });
        true
    }

    /// Notes a failure that this rank has found or a peer has reported, and marks it to be passed on to all peers.
    ///
    /// The failure of an earlier operation replaces that of a later one. Some ranks may still be in the earlier
    /// operation, and the later failure does not end it. They must hear of the earlier one from here, because the
    /// rank that reported it may be gone by then.
    pub(super) fn hear(&mut self, abort: Abort) {
        if self.abort.is_none_or(|known| abort.sequence < known.sequence) {
            self.abort = Some(abort);
            self.table.hear();
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
        self.table.pass_on(|id| {
            // A peer that is gone, or whose message cannot be encoded, is not tried again. `Ok(false)` means that the
            // lane is full: only then is there a later attempt. A rank that was given up for its silence can still
            // hear: it may have been stopped, and must learn when it goes on that the others ended without it.
            let lane = core.lane(id).filter(|lane| lane.can_hear());
            lane.is_some_and(|lane| lane.last_word(ABORT, |body| abort.write(body)) == Ok(false))
        });
    }

    /// Notes that operation `sequence`, which has this header, waits and has made no progress `since`; peers are told
    /// after a while.
    pub(crate) fn wait(
        &mut self,
        core: &mut EngineState,
        operation: (u64, Header),
        awaited: WaitingFor,
        since: Instant,
    ) {
        self.wait_graph.wait(operation, awaited, since);
        self.tell_waits(core);
    }

    /// The calls of this rank and of a linked one that waits in another operation of the same number. `present` is the
    /// header of this rank's present operation.
    ///
    /// A rank may wait in an earlier operation than this one's: it is late, or waits for messages that this rank has
    /// not sent because it called something else.
    pub(crate) fn waits_elsewhere(&self, present: Option<&Header>) -> Option<[Header; 2]> {
        let find = |sequence| {
            let present = present.filter(|present| present.sequence == sequence).copied();
            present.or_else(|| self.called.find(sequence))
        };
        let all = self.wait_graph.waits_in().filter(|theirs| !is_of_two(theirs));
        let mut both = all.filter_map(|theirs| Some([find(theirs.sequence)?, theirs]));
        both.find(|[ours, theirs]| !ours.agrees(theirs))
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
        let table = &self.table;
        self.wait_graph.tell(|rank| {
            table.link(rank).is_some_and(|link| {
                let is_up = core.lane(link.lanes.first).is_some_and(|lane| lane.ended().is_none());
                is_up && link.control(core, WAITS, |body| waits.write(body)) == Ok(false)
            })
        });
    }

    /// When a wait report is due if nothing arrives.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.wait_graph.next_deadline()
    }

    /// Compares the headers that have arrived of operations before number `next`, which have all ended here: whatever
    /// an operation has not read by its end is of a rank that has called something else.
    ///
    /// # Errors
    ///
    /// Such a rank.
    pub(super) fn check_unread(&self, next: u64) -> Result<(), WrongMessage> {
        let messages = self.table.links().filter_map(|link| link.first_unread());
        let messages = messages.map(|theirs| theirs.map_err(WrongMessage::Damaged));
        for theirs in messages.chain(self.ahead.front().copied().map(Ok)) {
            let theirs = theirs?;
            if theirs.sequence < next && !is_of_two(&theirs) {
                return Err(WrongMessage::Mismatch {
                    ours: self.called.find(theirs.sequence).unwrap_or(theirs),
                    theirs,
                });
            }
        }
        Ok(())
    }

    /// Checks whether another rank is in another operation than this rank was in under its number; `next` is the number
    /// of this rank's next operation. Only if anything has come since the last call: it costs a look at every link.
    ///
    /// # Errors
    ///
    /// Such a rank.
    pub(super) fn check_calls(&mut self, next: u64) -> Result<(), WrongMessage> {
        if std::mem::take(&mut self.table.any_message) {
            self.check_unread(next)?;
        }
        let elsewhere = self.waits_elsewhere(None);
        elsewhere.map_or(Ok(()), |[ours, theirs]| Err(WrongMessage::Mismatch { ours, theirs }))
    }

    /// The error for the caller of rank `own`, which is this one, by an abort: with both calls, if this rank has found
    /// that they differ.
    pub(crate) fn error_of(
        &self,
        abort: Abort,
        own: u32,
        away: Option<Duration>,
        interrupted: Option<Interrupted>,
    ) -> CollectiveError {
        match self.differ.filter(|_| abort.reporter == own && abort.reason == AbortReason::Mismatch) {
            Some(calls) => mismatch(own, calls),
            None => abort.into_error(own, away, interrupted),
        }
    }

    /// Tells all peers of a message that belongs to another operation than rank `reporter`, which is this one, was in,
    /// and returns the error for the caller. `next` is the number of this rank's next operation.
    pub(super) fn tell_wrong(
        &mut self,
        core: &mut EngineState,
        (reporter, next): (u32, u64),
        wrong: WrongMessage,
    ) -> CollectiveError {
        let (abort, error) = match wrong {
            WrongMessage::Mismatch { ours, theirs } => {
                let sequence = ours.sequence.min(theirs.sequence);
                // A call that is not known any more is not named.
                let is_known = ours.collective != 0 && !ours.agrees(&theirs);
                self.differ = is_known.then_some([ours, theirs]);
                let reason = AbortReason::Mismatch;
                let abort = Abort { sequence, culprit: theirs.rank, reporter, reason };
                (abort, self.error_of(abort, reporter, None, None))
            }
            WrongMessage::Damaged(culprit) => {
                let (sequence, reason) = (next, AbortReason::PeerFailed);
                let lost = self.violation_of(core, culprit, DAMAGED);
                (Abort { sequence, culprit, reporter, reason }, lost.into_error(None))
            }
        };
        self.tell(core, abort);
        error
    }

    /// Whether all that was sent has arrived, as far as the peers are there.
    pub(super) fn are_settled(&self, core: &mut EngineState) -> bool {
        // All links are asked, because each is told to find out.
        self.table.links().fold(true, |settled, link| settled & link.is_settled(core))
    }

    /// A peer that has failed.
    pub(crate) fn lost(&self, core: &mut EngineState) -> Option<Lost> {
        self.table.ended(core).find(Lost::is_loss)
    }

    /// How long this process did not run, if peers have ended meanwhile. An end in good order counts too, because the
    /// peers had to go on without this rank.
    pub(crate) fn left_behind(&self, core: &mut EngineState) -> Option<Duration> {
        self.table.ended(core).find_map(|lost| lost.away)
    }

    /// Ends the link to a rank that has written what the protocol forbids. A rank without a link is only named.
    pub(crate) fn violation_of(&self, core: &mut EngineState, rank: u32, what: &str) -> Lost {
        match self.table.link(rank) {
            Some(link) => link.violation(core, what),
            None => self.lost_for(rank, LaneFailure::Violation(what.into())),
        }
    }

    /// The next rank as lost, because the system refuses to write to its window.
    pub(crate) fn refused(&self, why: &ReachError) -> Lost {
        self.lost_for(self.next, LaneFailure::Device(why.to_string().into()))
    }

    /// A rank as lost for a reason that its lane does not know.
    fn lost_for(&self, rank: u32, cause: LaneFailure) -> Lost {
        Lost { rank, lane: self.link_for(rank).1, cause, away: None }
    }

    /// The lane to `rank`, or to the previous rank where there is no link to `rank`: an error names a lane.
    pub(crate) fn link_for(&self, rank: u32) -> (Option<LaneId>, LaneName) {
        let link = self.table.link(rank).or_else(|| self.table.link(self.previous));
        // The neighbours' links are there from the beginning, so that no error shows the number 0.
        let unnamed = LaneName { qp_num: QpNum(0), epoch: 0 };
        link.map_or((None, unnamed), |link| (Some(link.lanes.first), link.lanes.name))
    }

    /// The linked ranks whose lanes have ended; including those that closed in good order.
    ///
    /// An executor must call this **before** it polls for the peers' messages. A rank writes its messages before it
    /// exits, so a message that is not there after the end was seen never arrives. In the other order, a message
    /// between the two steps would be missed, and its sender taken for a rank that exited without it.
    pub(crate) fn ended(&self, core: &mut EngineState) -> Vec<Lost> {
        self.table.ended(core).collect()
    }
}

/// The rank to blame, of those that have [ended](Links::ended); `waits` says for which of them the operation still
/// waits.
///
/// A rank that closed in good order has done its part, and is at fault only if the operation waits for it. If another
/// rank has failed, that one is to blame: the first may have closed *because* of the failure.
pub(crate) fn at_fault(ended: impl IntoIterator<Item = Lost>, waits: impl Fn(u32) -> bool) -> Option<Lost> {
    let matters = |lost: &Lost| !matches!(lost.cause, LaneFailure::Closed) || waits(lost.rank);
    // `false` sorts first: a failure before an end in good order.
    ended.into_iter().filter(matters).min_by_key(|lost| !lost.is_loss())
}

/// Keeps a header of the previous rank until its operation takes it.
fn keep(ahead: &mut VecDeque<Header>, beyond: &mut Option<Header>, header: Header) {
    // The capacity is the bound on `Links::ahead`. Without it, a peer could make this rank's memory grow without end.
    if ahead.len() < ahead.capacity() {
        ahead.push_back(header);
    } else {
        beyond.get_or_insert(header);
    }
}

/// Keeps the failure of the earlier operation.
fn first(known: &mut Option<Abort>, abort: Abort) {
    if known.is_none_or(|known| abort.sequence < known.sequence) {
        *known = Some(abort);
    }
}

/// A control message of a communicator.
#[derive(Clone, Copy)]
pub(super) enum ControlMessage {
    Abort(Abort),
    Header(Header),
    LaneFenced(LaneFenced),
    WaitReport(WaitReport),
}

/// Decodes a control message; `None` if it is malformed or of an unknown kind.
pub(super) fn read_control(received: &Received) -> Option<ControlMessage> {
    let message = received.message().ok()?;
    match message.kind {
        ABORT => Abort::read(message.body).ok().map(ControlMessage::Abort),
        OPERATION => Header::read(message.body).ok().map(ControlMessage::Header),
        LANE_FENCED => LaneFenced::read(message.body).ok().map(ControlMessage::LaneFenced),
        WAITS => WaitReport::read(message.body).ok().map(ControlMessage::WaitReport),
        _ => None,
    }
}

/// Ends the lane of a peer that has sent what the protocol forbids.
pub(super) fn violation(rank: u32, lane: &mut Lane, what: &str) -> Lost {
    lane.violation(what);
    let cause = lane.ended().unwrap_or(LaneFailure::Fenced);
    Lost { rank, lane: lane.name(), cause, away: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_lost_is_at_fault_before_who_left_because_of_it() {
        let lane = LaneName { qp_num: QpNum(7), epoch: 0 };
        let ended = |rank, cause| Some(Lost { rank, lane, cause, away: None });
        let dead = || ended(0, LaneFailure::Silent { since: Duration::from_secs(1) });
        let left = || ended(2, LaneFailure::Closed);
        let named = |ended: [Option<Lost>; 2], waits: &[u32]| {
            at_fault(ended.into_iter().flatten(), |rank| waits.contains(&rank)).map(|lost| lost.rank)
        };
        for waits in [&[2][..], &[0], &[0, 2], &[]] {
            assert_eq!(named([dead(), left()], waits), Some(0));
            assert_eq!(named([left(), dead()], waits), Some(0));
            assert_eq!(named([None, dead()], waits), Some(0));
            assert_eq!(named([left(), None], waits), waits.contains(&2).then_some(2));
            assert_eq!(named([None, None], waits), None);
        }
    }
}
