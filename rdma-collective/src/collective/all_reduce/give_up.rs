//! The end of an operation that failed: the other ranks are told, and the caller gets the error.

use super::run::{Run, Stop};
use crate::collective::schedule::Step;
use crate::collective::{DataType, ReduceOp};
use crate::comm::operation::{Abort, Header};
use crate::comm::{Core, Direction, RingLinks};
use crate::error::{AbortReason, CollectiveError, Interrupted, OperationName};

impl Run {
    /// Tells both neighbours, as far as they can be told, and makes the error.
    pub(super) fn give_up(&mut self, ring: &mut RingLinks, core: &mut Core, stop: Stop) -> CollectiveError {
        let own = self.header.rank;
        let interrupted = self.interrupted(core);
        let (abort, error) = match stop {
            Stop::Lost(lost) => {
                (self.because(lost.culprit(own), AbortReason::PeerFailed), lost.into_error(Some(interrupted)))
            }
            Stop::Abort(abort) => (abort, abort.into_error(own, core.away(), Some(interrupted))),
            Stop::Mismatch(theirs) => (
                self.because(theirs.rank, AbortReason::Mismatch),
                CollectiveError::Mismatch {
                    rank: own,
                    peer: theirs.rank,
                    ours: interrupted.operation,
                    theirs: name(&theirs),
                },
            ),
            Stop::Reduce(error) => (self.because(own, AbortReason::Other), error.into()),
        };
        ring.tell(core, abort);
        error
    }

    /// The same at the deadline: the rank is named that the next step waits for, be it by others that wait.
    pub(super) fn give_up_late(&mut self, ring: &mut RingLinks, core: &mut Core) -> CollectiveError {
        let interrupted = self.interrupted(core);
        let side = self.waits_for();
        let (id, lane) = match side {
            Direction::Next => (ring.next.lane, ring.next.name),
            Direction::Previous => (ring.previous.lane, ring.previous.name),
        };
        if let Some(away) = core.away_from(id) {
            ring.tell(core, self.because(self.header.rank, AbortReason::PeerFailed));
            return CollectiveError::Fenced { away: Some(away), interrupted: Some(interrupted) };
        }
        let rank = ring.late(self.header.sequence, side);
        ring.tell(core, self.because(rank, AbortReason::DeadlineExceeded));
        let waited = core.driven().saturating_duration_since(self.started);
        CollectiveError::DeadlineExceeded { rank, lane, interrupted, waited }
    }

    fn because(&self, culprit: u32, reason: AbortReason) -> Abort {
        Abort { sequence: self.header.sequence, culprit, reporter: self.header.rank, reason }
    }

    fn interrupted(&self, core: &Core) -> Interrupted {
        Interrupted {
            operation: name(&self.header),
            bytes_outstanding: self.bytes_outstanding(),
            last_progress: core.driven().saturating_duration_since(self.progressed),
        }
    }

    /// What was to come from the rank before this one and has not been used.
    fn bytes_outstanding(&self) -> u64 {
        let rest = self.step.into_iter().chain(self.steps.clone());
        let bytes = rest.map(|step| match step {
            Step::ReduceFrom { span, .. } | Step::CopyFrom { span, .. } => span.len as u64,
            _ => 0,
        });
        bytes.sum()
    }
}

fn name(header: &Header) -> OperationName {
    let (data_type, op) = (DataType::of_code(header.data_type), ReduceOp::of_code(header.reduction));
    let of = match (data_type, op) {
        (Some(data_type), Some(op)) => format!("{data_type} ({op})"),
        _ => format!("elements of type {} (operation {})", header.data_type, header.reduction),
    };
    let collective =
        if header.collective == super::ALL_REDUCE { "all-reduce" } else { "an unknown operation" };
    OperationName { sequence: header.sequence, collective, count: header.count, of }
}
