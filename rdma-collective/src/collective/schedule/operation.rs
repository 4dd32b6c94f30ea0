//! The operation that a schedule is made for, and the checks that all schedules share.

use super::{Span, Staging, Step};
use crate::collective::DataType;
use crate::collective::ScheduleError;

/// An operation as seen from one rank; all fields but `rank` are the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Operation {
    /// This rank, below `ranks`.
    pub(crate) rank: u32,
    /// How many ranks take part, at least 1.
    pub(crate) ranks: u32,
    /// Elements of each rank's buffer, or of its part where each has one of a longer buffer; may be 0.
    pub(crate) count: usize,
    /// The type of the elements.
    pub(crate) data_type: DataType,
    /// The memory that messages go through.
    pub(crate) staging: Staging,
}

impl Operation {
    /// Checks the rank and the count, and makes the only step of a rank that is alone.
    pub(super) fn check(&self) -> Result<Option<Step>, ScheduleError> {
        let Self { rank, ranks, count, data_type, .. } = *self;
        if rank >= ranks {
            return Err(ScheduleError::RankOutOfRange { rank, ranks });
        }
        let len = data_type.bytes(count)?;
        Ok((ranks == 1 && len > 0).then_some(Step::copy(Span { offset: 0, len })))
    }

    /// [`check`](Self::check) for an operation in which every rank has a part of `count` elements: one buffer must be
    /// able to hold all parts.
    pub(super) fn check_parts(&self) -> Result<Option<Step>, ScheduleError> {
        self.data_type.bytes(self.count.saturating_mul(self.ranks as usize))?;
        self.check()
    }

    /// [`check`](Self::check) for an operation that begins or ends at `root`.
    pub(super) fn check_root(&self, root: u32) -> Result<Option<Step>, ScheduleError> {
        if root >= self.ranks {
            return Err(ScheduleError::RankOutOfRange { rank: root, ranks: self.ranks });
        }
        self.check()
    }

    /// The rank that this one sends to around the ring.
    pub(super) fn next_rank(&self) -> u32 {
        if self.rank + 1 == self.ranks { 0 } else { self.rank + 1 }
    }

    /// The rank that this one receives from around the ring.
    pub(super) fn previous_rank(&self) -> u32 {
        if self.rank == 0 { self.ranks - 1 } else { self.rank - 1 }
    }

    /// How many ranks come before this one when ranks count from `first`, around the ring.
    pub(super) fn position_from(&self, first: u32) -> u32 {
        if self.rank >= first { self.rank - first } else { self.ranks - first + self.rank }
    }
}
