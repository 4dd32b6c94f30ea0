//! Element types, operations and the arithmetic on them.
//!
//! Owns the numbers; where the bytes come from and go to is the schedule's business.

mod dtype;
mod element;
mod extreme;
mod half;
mod kernels;
mod number;
mod op;

pub use dtype::DataType;
pub use element::Element;
pub use kernels::{finish, reduce, reduce_into};
pub use op::ReduceOp;
