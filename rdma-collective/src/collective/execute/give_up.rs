//! The end of an operation that failed: the other ranks are told, and the caller gets the error.

use std::time::Instant;

use super::run::Stop;
use crate::collective::call::{is_of_two, name};
use crate::collective::communicator::{Awaited, Direction, RingLinks, Unlinked};
use crate::collective::operation::{Abort, DAMAGED, Header};
use crate::collective::{AbortReason, CollectiveError, Interrupted};
use crate::engine::Core;

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
    pub(super) fn give_up(&self, ring: &mut RingLinks, core: &mut Core, stop: Stop) -> CollectiveError {
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
            Stop::Unconnected(rank) => return ring.mesh.unconnected(rank),
            Stop::Reduce(error) => (self.because(own, AbortReason::Other), error.into()),
        };
        ring.tell(core, abort);
        error
    }

    /// The same at the deadline: the rank is named that is waited for, be it by others that wait.
    pub(super) fn give_up_late(
        &self,
        ring: &mut RingLinks,
        core: &mut Core,
        awaited: Awaited,
    ) -> CollectiveError {
        let interrupted = self.interrupted(core);
        let linked = match awaited {
            Awaited::Linked(rank) => ring.mesh.link(rank).map(|link| (link.lane, link.name)),
            Awaited::Neighbour(Direction::Next) => Some((ring.next.lane, ring.next.name)),
            _ => None,
        };
        let (id, lane) = linked.unwrap_or((ring.previous.lane, ring.previous.name));
        if let Some(away) = core.away_from(id) {
            ring.tell(core, self.because(self.header.rank, AbortReason::PeerFailed));
            return CollectiveError::Fenced { away: Some(away), interrupted: Some(interrupted) };
        }
        let rank = ring.late(self.sequence, awaited);
        ring.tell(core, self.because(rank, AbortReason::DeadlineExceeded));
        let waited = core.driven().saturating_duration_since(self.started);
        CollectiveError::DeadlineExceeded { rank, lane, interrupted, waited }
    }

    fn because(&self, culprit: u32, reason: AbortReason) -> Abort {
        Abort { sequence: self.sequence, culprit, reporter: self.header.rank, reason }
    }

    fn interrupted(&self, core: &Core) -> Interrupted {
        Interrupted {
            operation: name(&self.header),
            bytes_outstanding: self.bytes_outstanding,
            last_progress: core.driven().saturating_duration_since(self.progressed),
        }
    }
}
