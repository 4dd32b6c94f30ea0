//! The end of an operation that failed: the other ranks are told, and the caller gets the error.

use std::time::Instant;

use super::run::{Run, Stop};
use crate::collective::schedule::Step;
use crate::collective::{DataType, ReduceOp};
use crate::comm::Core;
use crate::comm::operation::{ABORT, Abort, Header};
use crate::error::{AbortReason, CollectiveError, OperationName};

impl Run<'_> {
    /// Tells both neighbours, as far as they can be told, and makes the error.
    pub(super) fn give_up(&mut self, core: &mut Core, stop: Stop) -> CollectiveError {
        let operation = name(&self.header);
        let bytes_outstanding = self.bytes_outstanding();
        let own = self.header.rank;
        let because =
            |culprit, reason| Abort { sequence: self.header.sequence, culprit, reporter: own, reason };
        let (abort, error) = match stop {
            Stop::Lane { rank, lane, cause } => (
                because(rank, AbortReason::PeerFailed),
                CollectiveError::PeerFailed { rank, lane, cause, operation, bytes_outstanding },
            ),
            Stop::Abort(abort) => {
                let Abort { culprit, reporter, reason, .. } = abort;
                let error =
                    CollectiveError::Aborted { culprit, reporter, reason, operation, bytes_outstanding };
                (abort, error)
            }
            Stop::Mismatch(theirs) => (
                because(theirs.rank, AbortReason::Mismatch),
                CollectiveError::Mismatch {
                    rank: own,
                    peer: theirs.rank,
                    ours: operation,
                    theirs: name(&theirs),
                },
            ),
            Stop::Reduce(error) => (because(own, AbortReason::Other), error.into()),
        };
        self.tell(core, &abort);
        error
    }

    /// The same at the deadline: the neighbour that the next step waits for is named.
    pub(super) fn give_up_late(&mut self, core: &mut Core) -> CollectiveError {
        let (rank, lane) = match self.step {
            Some(Step::Put { .. }) => (self.ring.next.rank, self.ring.next.name),
            _ => (self.ring.previous.rank, self.ring.previous.name),
        };
        let abort = Abort {
            sequence: self.header.sequence,
            culprit: rank,
            reporter: self.header.rank,
            reason: AbortReason::DeadlineExceeded,
        };
        self.tell(core, &abort);
        CollectiveError::DeadlineExceeded {
            rank,
            lane,
            operation: name(&self.header),
            bytes_outstanding: self.bytes_outstanding(),
            waited: Instant::now().saturating_duration_since(self.started),
        }
    }

    fn tell(&self, core: &mut Core, abort: &Abort) {
        for lane in self.lanes() {
            if let Some(lane) = core.lane(lane)
                && !matches!(lane.control(ABORT, |body| abort.write(body)), Ok(true))
            {
                tracing::debug!(lane = %lane.name(), "a neighbour could not be told that an operation failed");
            }
        }
        core.flush();
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
    let data_type =
        DataType::ALL.iter().find(|data_type| super::data_type_code(**data_type) == header.data_type);
    let op = ReduceOp::ALL.iter().find(|op| super::reduction_code(**op) == header.reduction);
    let of = match (data_type, op) {
        (Some(data_type), Some(op)) => format!("{data_type} ({op})"),
        _ => format!("elements of type {} (operation {})", header.data_type, header.reduction),
    };
    let collective =
        if header.collective == super::ALL_REDUCE { "all-reduce" } else { "an unknown operation" };
    OperationName { sequence: header.sequence, collective, count: header.count, of }
}
