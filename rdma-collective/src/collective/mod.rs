//! Collective operations: what is reduced, in which steps, and their calls.
//!
//! Who sends what when is [data](schedule) and the arithmetic works on byte slices that the processor owns: both are
//! pure. The calls are methods of [`Communicator`] and carry the schedules out; peers,
//! memory registration and time belong to `comm`.

mod api;
mod call;
pub(crate) mod communicator;
mod eager_plan;
mod error;
mod execute;
mod init;
pub(crate) mod operation;
mod rails;
mod rank_of;
mod reduce;
pub mod schedule;
mod send_recv_set;
mod setup_error;
mod split;
mod tensor;
mod uneven;
mod zero_copy_plan;

#[doc = include_str!("../../../docs/numerics.md")]
pub mod numerics {}

pub use api::{Group, Result, Started};
pub use communicator::{
    Aborter, Algorithm, Algorithms, Communicator, CommunicatorOptions, Pending, PendingFuture, RankInfo,
    StillPending, UnknownAlgorithm, WaitError, tuning,
};
pub use error::{AbortReason, CollectiveError, Interrupted, OperationName};
pub use half::{bf16, f16};
pub use init::{InitError, InitOptions};
pub use rails::{Rails, RailsOptions};
pub use reduce::{AllocError, DataType, Element, ReduceError, ReduceOp, Reduction, ScheduleError, Vectors};
pub use setup_error::CommunicatorError;
pub use tensor::Tensor;
