//! Collective operations: what is reduced, in which steps, and their calls.
//!
//! Who sends what when is [data](schedule) and the arithmetic works on byte slices that the processor owns: both are
//! pure. The calls are methods of [`Communicator`] and carry the schedules out; peers,
//! memory registration and time belong to `comm`.

mod all_gather;
mod all_reduce;
mod all_to_all;
mod barrier;
mod broadcast;
mod call;
pub(crate) mod communicator;
mod connect;
mod direct;
mod error;
mod exchange;
mod execute;
mod gather;
mod group;
pub(crate) mod operation;
mod points;
mod rails;
mod reduce;
mod reduce_scatter;
mod reduce_to_root;
mod scatter;
pub mod schedule;
mod send_recv;
mod setup_error;
mod split;
mod tensor;
mod uneven;

#[doc = include_str!("../../../docs/numerics.md")]
pub mod numerics {}

pub use communicator::{
    Aborter, Algorithm, Algorithms, Communicator, CommunicatorOptions, Pending, PendingFuture, RankInfo,
    StillPending, UnknownAlgorithm, WaitError, tuning,
};
pub use error::{AbortReason, CollectiveError, Interrupted, OperationName};
pub use group::Group;
pub use half::{bf16, f16};
pub use rails::{Rails, RailsOptions};
pub use reduce::{AllocError, DataType, Element, ReduceError, ReduceOp, Reduction, ScheduleError, Vectors};
pub use setup_error::CommunicatorError;
pub use tensor::Tensor;
