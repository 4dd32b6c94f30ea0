//! Element types, operations and the arithmetic on them.
//!
//! Owns the numbers. Where bytes come from and go to is the schedule's and the executor's business.

mod dtype;
mod element;
mod error;
mod kernels;
mod op;
mod reduction;

pub use dtype::DataType;
pub use element::Element;
pub use error::{AllocError, ReduceError, ScheduleError};
pub(crate) use kernels::Operand;
pub use kernels::Vectors;
pub use op::ReduceOp;
pub use reduction::Reduction;
