//! What schedules are made for.

use super::{Span, Staging, Step};
use crate::collective::DataType;
use crate::error::ScheduleError;

/// What is reduced, seen from one rank; all but `rank` is the same on all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// This rank, below `ranks`.
    pub rank: u32,
    /// How many ranks take part, at least 1.
    pub ranks: u32,
    /// Elements of each rank's buffer; may be 0.
    pub count: usize,
    /// The type of the elements.
    pub data_type: DataType,
    /// The memory that messages go through.
    pub staging: Staging,
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
}
