//! Public calls of collectives: methods of [`Communicator`] and their documentation, one file a collective.
//!
//! A file has the calls on equal parts, on parts of any length (`_v`) and on tensors (`start_`). The methods check
//! nothing and choose nothing: `call` checks the arguments, and `execute` chooses a plan and carries it out. The
//! imports of this file serve all of them.

mod all_gather;
mod all_reduce;
mod all_to_all;
mod barrier;
mod broadcast;
mod connect;
mod gather;
mod group;
mod reduce;
mod reduce_scatter;
mod scatter;
mod send_recv;

use rdma_core::{Deadline, Refused};

use super::call::{BARRIER_BYTES, Call, Collective, Request};
use super::communicator::{Communicator, Pending};
use super::execute::{Borrowed, Job};
use super::uneven::{Counts, Sides};
use super::{CollectiveError, DataType, Element, ReduceError, ReduceOp, Tensor};

pub use group::Group;

/// The result of an operation: an error says what ended it, and how to go on.
///
/// [`Communicator::all_reduce`](crate::collective::Communicator::all_reduce) has an example.
pub type Result<T> = std::result::Result<T, CollectiveError>;

/// The result of starting an operation on tensors: what waits for them, or the tensors themselves with the error.
///
/// [`Communicator::start_all_reduce`](crate::collective::Communicator::start_all_reduce) has an example.
pub type Started<T> = std::result::Result<Pending<T>, Refused<T, CollectiveError>>;
