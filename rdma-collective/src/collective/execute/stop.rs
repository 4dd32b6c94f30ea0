//! The end of an operation that failed: the other ranks are told, and the caller gets the error.

use std::time::Instant;

use rdma_core::error::ReachError;

use crate::collective::call::{is_of_two, name};
use crate::collective::communicator::{
    Direction, HostGroup, Link, Lost, RingLinks, Unlinked, WaitingFor, WrongMessage, violation,
};
use crate::collective::operation::{Abort, DAMAGED, Header};
use crate::collective::{AbortReason, CollectiveError, Interrupted, ReduceError};
use crate::engine::EngineState;
use crate::link::LaneFailure;

/// Why an operation stops before its end.
pub(super) enum Stop {
    /// Nothing comes from a neighbour any more.
    Lost(Lost),
    /// Another rank gave up.
    Abort(Abort),
    /// Another rank is in another operation, or was.
    Mismatch { ours: Header, theirs: Header },
    /// Another rank sends another count than this one expects.
    Counts { theirs: Header, expected: u64 },
    /// A rank of this host has left what is no header.
    Damaged(u32),
    /// This process may not leave anything: it was forked from the one that the others know.
    Refused(ReachError),
    /// The arithmetic refused.
    Reduce(ReduceError),
    /// A rank could not be connected to others; all ranks know it.
    Unlinked(Unlinked),
    /// Nothing was sent, since an operation before it has found that there can be no link to that rank.
    Unconnected(u32),
}

impl Stop {
    /// A rank that is in an earlier operation than this one differs from what this one has called then: who only gives on its host
    /// goes on before the others come.
    pub(super) fn of_its_time(self, host: Option<&HostGroup>) -> Self {
        let Self::Mismatch { ours, theirs } = self else { return self };
        let earlier = theirs.sequence < ours.sequence && !is_of_two(&ours) && !is_of_two(&theirs);
        let called = host.filter(|_| earlier).and_then(|host| host.called(theirs.sequence));
        Self::Mismatch { ours: called.filter(|called| !called.agrees(&theirs)).unwrap_or(ours), theirs }
    }
}

impl From<WrongMessage> for Stop {
    fn from(unlike: WrongMessage) -> Self {
        match unlike {
            WrongMessage::Damaged(rank) => Self::Damaged(rank),
            WrongMessage::Mismatch { ours, theirs } => Self::Mismatch { ours, theirs },
        }
    }
}

/// Whether another rank has ended an operation, or this one's caller has.
pub(super) fn is_ended_by(header: &Header, abort: &Abort) -> bool {
    abort.sequence <= header.sequence && !is_found_here(header, abort)
}

/// Whether this rank has ended it by itself.
pub(super) fn is_found_here(header: &Header, abort: &Abort) -> bool {
    abort.reporter == header.rank && abort.reason != AbortReason::Requested
}

/// How far an operation has come.
pub(super) struct Progress {
    pub(super) header: Header,
    /// Its place among the operations of all ranks, which is not the number of a send or receive.
    pub(super) sequence: u64,
    /// What was to come from other ranks and has not been used.
    pub(super) bytes_outstanding: u64,
    pub(super) started: Instant,
    /// When it came further last.
    pub(super) progressed: Instant,
}

impl Progress {
    /// Tells both neighbours, as far as they can be told, and makes the error.
    pub(super) fn give_up(
        &self,
        ring: &mut RingLinks,
        core: &mut EngineState,
        stop: Stop,
    ) -> CollectiveError {
        let own = self.header.rank;
        let interrupted = self.interrupted(core);
        let (abort, error) = match stop {
            Stop::Lost(lost) => {
                (self.because(lost.culprit(own), AbortReason::PeerFailed), lost.into_error(Some(interrupted)))
            }
            Stop::Refused(why) => return self.give_up(ring, core, Stop::Lost(ring.next.refused(&why))),
            Stop::Abort(abort) => (abort, abort.into_error(own, core.away(), Some(interrupted))),
            Stop::Mismatch { ours, theirs } => (
                Abort {
                    // The others may be in that one still.
                    sequence: if is_of_two(&ours) { self.sequence } else { self.sequence.min(ours.sequence) },
                    ..self.because(theirs.rank, AbortReason::Mismatch)
                },
                CollectiveError::Mismatch {
                    rank: own,
                    peer: theirs.rank,
                    ours: name(&ours),
                    theirs: name(&theirs),
                },
            ),
            Stop::Counts { theirs: Header { rank: peer, count: sent, .. }, expected } => (
                self.because(peer, AbortReason::Mismatch),
                CollectiveError::CountsDiffer { rank: own, peer, expected, sent },
            ),
            Stop::Damaged(rank) => {
                let lost = ring.violation_of(core, rank, DAMAGED);
                (self.because(lost.culprit(own), AbortReason::PeerFailed), lost.into_error(Some(interrupted)))
            }
            // All ranks have been told by the one that could not.
            Stop::Unlinked(Unlinked { rank, reason }) => {
                return CollectiveError::Unlinked { rank, reason };
            }
            // It is so on all ranks, and nobody has sent anything.
            Stop::Unconnected(rank) => return ring.link_table.unconnected(rank),
            Stop::Reduce(error) => (self.because(own, AbortReason::Other), error.into()),
        };
        ring.tell(core, abort);
        error
    }

    /// The same at the deadline: the rank is named that is waited for, be it by others that wait.
    pub(super) fn give_up_late(
        &self,
        ring: &mut RingLinks,
        core: &mut EngineState,
        awaited: WaitingFor,
    ) -> CollectiveError {
        let interrupted = self.interrupted(core);
        let linked = match awaited {
            WaitingFor::Linked(rank) => ring.link_table.link(rank).map(|link| (link.lane, link.name)),
            WaitingFor::Neighbour(Direction::Next) => Some((ring.next.lane, ring.next.name)),
            _ => None,
        };
        let (id, lane) = linked.unwrap_or((ring.previous.lane, ring.previous.name));
        if let Some(away) = core.away_from(id) {
            ring.tell(core, self.because(self.header.rank, AbortReason::PeerFailed));
            return CollectiveError::Fenced { away: Some(away), interrupted: Some(interrupted) };
        }
        let rank = ring.late(self.sequence, awaited);
        ring.tell(core, self.because(rank, AbortReason::DeadlineExceeded));
        let waited = core.now().saturating_duration_since(self.started);
        CollectiveError::DeadlineExceeded { rank, lane, interrupted, waited }
    }

    fn because(&self, culprit: u32, reason: AbortReason) -> Abort {
        Abort { sequence: self.sequence, culprit, reporter: self.header.rank, reason }
    }

    fn interrupted(&self, core: &EngineState) -> Interrupted {
        Interrupted {
            operation: name(&self.header),
            bytes_outstanding: self.bytes_outstanding,
            last_progress: core.now().saturating_duration_since(self.progressed),
        }
    }
}

/// The rank before this one has sent what it may not send.
pub(super) fn wrong(ring: &RingLinks, core: &mut EngineState, what: &str) -> Stop {
    let previous = &ring.previous;
    Stop::Lost(match core.lane(previous.lane) {
        Some(lane) => violation(previous.rank, lane, what),
        None => Lost { rank: previous.rank, lane: previous.name, cause: LaneFailure::Fenced, away: None },
    })
}

/// The rank at the other end has sent what it may not send.
pub(super) fn odd(link: &Link, core: &mut EngineState, what: &str) -> Stop {
    Stop::Lost(match core.lane(link.lane) {
        Some(lane) => violation(link.rank, lane, what),
        None => Lost { rank: link.rank, lane: link.name, cause: LaneFailure::Fenced, away: None },
    })
}
