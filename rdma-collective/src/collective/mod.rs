//! Collective operations: [`Communicator`], its calls, and the elements that they move and reduce.
//!
//! [`Communicator::init`] makes a communicator; the calls are its methods.
//!
//! # Rules of all calls
//!
//! - **Same calls, same order.** All ranks call the same operations in the same order, with the same type, count,
//!   reduction and root. The ranks that find a difference return [`CollectiveError::Mismatch`].
//! - **Deadlines.** Every call ends by its deadline; the error then names the rank that did not answer.
//! - **Refusals and failures.** A refused call sends nothing, and the communicator goes on. Any other error ends the
//!   communicator on all ranks; see [`CollectiveError`].
//! - **Slices** are copied through memory of the library, so that nothing uses them after a call returns. **Tensors**
//!   are memory of the library: operations send from them without a copy.
//!
//! # Names of the calls
//!
//! | name | form |
//! |---|---|
//! | `all_reduce` | on one slice, in place |
//! | `all_reduce_into` | from one slice into another |
//! | `all_reduce_bytes`, `all_reduce_bytes_into` | the element type is a value; data are bytes at any alignment |
//! | `start_all_reduce`, `start_all_reduce_into` | on [`Tensor`]s: returns at once; [`Pending`] returns the tensors |
//! | `all_gather_v` | on parts of any length, with one count for each rank |
//!
//! # Parts
//!
//! Schedules (`schedule`) and reduction (`reduce`) are pure: data, and arithmetic on byte slices. `execute` carries the
//! schedules out. Lanes, memory registration and time belong to `link` and `engine`.

mod api;
mod call;
pub(crate) mod communicator;
mod eager_plan;
mod error;
mod execute;
mod init;
pub(crate) mod operation;
mod rank_of;
mod reduce;
mod schedule;
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
    Aborter, Algorithm, Algorithms, Communicator, CommunicatorOptions, LostLane, Pending, PendingFuture,
    RankInfo, StillPending, UnknownAlgorithm, WaitError, tuning,
};
pub use error::{AbortReason, CollectiveError, Interrupted, OperationName};
pub use half::{bf16, f16};
pub use init::{InitError, InitOptions};
pub use reduce::{AllocError, DataType, Element, ReduceError, ReduceOp, Reduction, ScheduleError, Vectors};
pub use setup_error::CommunicatorError;
pub use tensor::Tensor;
