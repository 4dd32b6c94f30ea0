//! Errors of the parts of a collective: arithmetic, schedules and memory.

use rdma_core::error::RegisterError;

use crate::collective::DataType;

/// Why bytes were not reduced; the destination is untouched.
///
/// Raised by [`Reduction`](crate::collective::Reduction).
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReduceError {
    /// The operands do not have one length.
    #[error("operands of {left} and {right} bytes cannot be reduced; pass ranges of one length")]
    LengthsDiffer {
        /// Bytes of the destination, or of the first operand.
        left: usize,
        /// Bytes of the source that did not match it.
        right: usize,
    },
    /// There is nothing to reduce.
    #[error("a reduction out of place needs an input; pass at least one")]
    NoInputs,
    /// The operands end inside an element.
    #[error(
        "{bytes} bytes end inside a {data_type} element of {} bytes; pass whole elements",
        data_type.size()
    )]
    PartialElement {
        /// Bytes of each operand.
        bytes: usize,
        /// The element type the bytes were said to hold.
        data_type: DataType,
    },
    /// A count of elements has more bytes than one buffer can.
    #[error(
        "{count} {data_type} elements are more bytes than one buffer can have ({}); split the operation",
        isize::MAX
    )]
    TooManyElements {
        /// The count asked for.
        count: usize,
        /// The element type.
        data_type: DataType,
    },
}

/// Why there is no schedule for an operation.
///
/// A part of [`CollectiveError`](crate::collective::CollectiveError).
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The rank is not one of the ranks, or there are none.
    #[error("rank {rank} is not one of {ranks}; ranks count from 0")]
    RankOutOfRange {
        /// The rank asked for.
        rank: u32,
        /// How many ranks there are.
        ranks: u32,
    },
    /// The count has more bytes than a buffer can.
    #[error(transparent)]
    Count(#[from] ReduceError),
    /// There is no slot, or none that an element fits.
    #[error(
        "staging of {slots} slots of {slot_bytes} bytes cannot carry elements of {element_bytes} bytes; \
         give it at least one slot of one element"
    )]
    StagingTooSmall {
        /// Slots a link.
        slots: u16,
        /// Bytes a slot.
        slot_bytes: usize,
        /// Bytes an element.
        element_bytes: usize,
    },
    /// Not every rank has a host.
    #[error("{named} hosts are named for {ranks} ranks; name that of each")]
    Hosts {
        /// How many ranks have a host.
        named: usize,
        /// How many ranks there are.
        ranks: u32,
    },
}

/// Why there is no tensor.
///
/// Raised by [`Communicator::alloc`](crate::collective::Communicator::alloc).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// More elements than a buffer can have.
    #[error(transparent)]
    Count(#[from] ReduceError),
    /// The memory is not to be had, or a limit on pinned memory refuses.
    #[error("{0}")]
    Register(#[from] RegisterError),
}
