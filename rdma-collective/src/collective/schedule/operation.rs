//! What schedules are made for.

use super::{Span, Staging, Step};
use crate::collective::DataType;
use crate::collective::ScheduleError;

/// What a schedule is made for, seen from one rank; all but `rank` is the same on all of them.
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
    /// Checks what all schedules ask for, and makes the only step of a rank that is alone.
    pub(super) fn check(&self) -> Result<Option<Step>, ScheduleError> {
        let Self { rank, ranks, count, data_type, .. } = *self;
        if rank >= ranks {
            return Err(ScheduleError::RankOutOfRange { rank, ranks });
        }
        let len = data_type.bytes(count)?;
        Ok((ranks == 1 && len > 0).then_some(Step::Copy { span: Span { offset: 0, len } }))
    }

    /// The same for one in which every rank has a part of `count` elements: that a buffer can have all of them.
    pub(super) fn check_parts(&self) -> Result<Option<Step>, ScheduleError> {
        self.data_type.bytes(self.count.saturating_mul(self.ranks as usize))?;
        self.check()
    }

    /// The same for one that begins or ends at `root`.
    pub(super) fn check_root(&self, root: u32) -> Result<Option<Step>, ScheduleError> {
        if root >= self.ranks {
            return Err(ScheduleError::RankOutOfRange { rank: root, ranks: self.ranks });
        }
        self.check()
    }

    /// The rank that this one sends to.
    pub(super) fn next_rank(&self) -> u32 {
        if self.rank + 1 == self.ranks { 0 } else { self.rank + 1 }
    }

    /// The rank that this one receives from.
    pub(super) fn previous_rank(&self) -> u32 {
        if self.rank == 0 { self.ranks - 1 } else { self.rank - 1 }
    }
}
