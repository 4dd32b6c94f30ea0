//! The end of an operation that failed: this rank reports the reason to the other ranks, and the caller gets the error.
//!
//! Executors return a [`Stop`]. The communicator finds the rank to blame: `wait_graph` for a missed deadline,
//! `attribution` for a lane that has ended.

use std::time::Instant;

use rdma_core::error::ReachError;

use crate::collective::call::{is_of_two, mismatch, name};
use crate::collective::communicator::{HostGroup, Links, Lost, Unlinked, WaitingFor, WrongMessage};
use crate::collective::operation::{Abort, DAMAGED, Header};
use crate::collective::{AbortReason, CollectiveError, Interrupted, ReduceError};
use crate::engine::EngineState;

/// Why an operation stops before its end.
pub(super) enum Stop {
    /// The lane to a rank has ended.
    Lost(Lost),
    /// A rank has ended the operation and reported why.
    Abort(Abort),
    /// A rank is or was in another operation.
    Mismatch { ours: Header, theirs: Header },
    /// A rank sends another count than this one expects.
    Counts { theirs: Header, expected: u64 },
    /// A rank of this host has sent a damaged header.
    Damaged(u32),
    /// This process may not write to the windows, because it is a forked child of the process that joined.
    Refused(ReachError),
    /// The reduction failed.
    Reduce(ReduceError),
    /// A rank could not connect to others. All ranks know it.
    Unlinked(Unlinked),
    /// An earlier operation found that there can be no link to this rank, so nothing was sent.
    Unconnected(u32),
}

impl Stop {
    /// Reports a mismatch against the operation that the peer is actually in.
    ///
    /// A rank that only sends, such as a broadcast root, may be ahead of its peers. So the header of a slower peer is
    /// compared with what this rank called at that sequence number.
    pub(super) fn of_its_time(self, host: Option<&HostGroup>, links: &Links) -> Self {
        let Self::Mismatch { ours, theirs } = self else { return self };
        let earlier = theirs.sequence < ours.sequence && !is_of_two(&ours) && !is_of_two(&theirs);
        // If the two headers agree there, the present operation is the one that differs.
        if !earlier {
            return Self::Mismatch { ours, theirs };
        }
        let mapped = host.and_then(|host| host.called(theirs.sequence));
        let called = mapped.or_else(|| links.called.find(theirs.sequence));
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

/// Whether the abort ends the operation of `header`: another rank reported it, or this rank's caller requested it.
pub(super) fn is_ended_by(header: &Header, abort: &Abort) -> bool {
    // An abort of an earlier operation ends this one too, because its reporter takes part in nothing afterwards.
    abort.sequence <= header.sequence && !is_found_here(header, abort)
}

/// Whether this rank found the reason of the abort itself, and its lanes tell whether the operation ends by it. Not for
/// an abort that its caller requested, and one because of an operation that had ended here.
pub(super) fn is_found_here(header: &Header, abort: &Abort) -> bool {
    let by_lanes = !matches!(abort.reason, AbortReason::Requested | AbortReason::Mismatch);
    abort.reporter == header.rank && by_lanes
}

/// The progress of an operation, for its error.
pub(super) struct Progress {
    pub(super) header: Header,
    /// The number of the operation among those of all ranks. Not the number of a send or receive, which two ranks count
    /// between them.
    pub(super) sequence: u64,
    /// Bytes that were to arrive from other ranks and have not been used.
    pub(super) bytes_outstanding: u64,
    pub(super) started: Instant,
    /// The time of the last progress.
    pub(super) progressed: Instant,
}

impl Progress {
    /// Reports the stop to all linked ranks, as far as their lanes still work, and returns the caller's error.
    pub(super) fn give_up(&self, links: &mut Links, core: &mut EngineState, stop: Stop) -> CollectiveError {
        let own = self.header.rank;
        let interrupted = self.interrupted(core);
        let (abort, error) = match stop {
            Stop::Lost(lost) => {
                (self.because(lost.culprit(own), AbortReason::PeerFailed), lost.into_error(Some(interrupted)))
            }
            Stop::Refused(why) => return self.give_up(links, core, Stop::Lost(links.refused(&why))),
            Stop::Abort(abort) => (abort, links.error_of(abort, own, core.away(), Some(interrupted))),
            Stop::Mismatch { ours, theirs } => (
                Abort {
                    // The peers may still be in the earlier operation. An abort with a later number would not end it.
                    sequence: match is_of_two(&ours) || is_of_two(&theirs) {
                        true => self.sequence,
                        false => self.sequence.min(ours.sequence).min(theirs.sequence),
                    },
                    ..self.because(theirs.rank, AbortReason::Mismatch)
                },
                mismatch(own, [ours, theirs]),
            ),
            Stop::Counts { theirs: Header { rank: peer, count: sent, .. }, expected } => (
                self.because(peer, AbortReason::Mismatch),
                CollectiveError::CountsDiffer { rank: own, peer, expected, sent },
            ),
            Stop::Damaged(rank) => {
                let lost = links.violation_of(core, rank, DAMAGED);
                (self.because(lost.culprit(own), AbortReason::PeerFailed), lost.into_error(Some(interrupted)))
            }
            // No report: the rank that could not connect has announced it to all ranks.
            Stop::Unlinked(Unlinked { rank, reason }) => {
                return CollectiveError::Unlinked { rank, reason };
            }
            // No report: all ranks come to this result by themselves, and nobody has sent anything.
            Stop::Unconnected(rank) => return links.table.unconnected(rank),
            Stop::Reduce(error) => (self.because(own, AbortReason::Other), error.into()),
        };
        links.tell(core, abort);
        error
    }

    /// Ends the operation at its deadline. The error names the rank at the end of the chain of waits, which may not be
    /// the one that this rank waits for.
    pub(super) fn give_up_late(
        &self,
        links: &mut Links,
        core: &mut EngineState,
        awaited: WaitingFor,
    ) -> CollectiveError {
        let interrupted = self.interrupted(core);
        let rank = if let WaitingFor::Rank(rank) = awaited { rank } else { links.previous };
        let (id, lane) = links.link_for(rank);
        // If this process did not run for a while, and has not heard the peer since, the delay is its own fault: blame
        // no peer.
        if let Some(away) = id.and_then(|id| core.away_from(id)) {
            links.tell(core, self.because(self.header.rank, AbortReason::PeerFailed));
            return CollectiveError::Fenced { away: Some(away), interrupted: Some(interrupted) };
        }
        let rank = links.late(self.sequence, awaited);
        links.tell(core, self.because(rank, AbortReason::DeadlineExceeded));
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
