//! Collective operations: what is reduced and in which steps.
//!
//! Everything here is pure: who sends what when is [data](schedule), and the arithmetic works on byte
//! slices that the processor owns. Peers, memory registration and time belong to `comm`.

mod reduce;
pub mod schedule;

pub use half::f16;
pub use reduce::{DataType, Element, ReduceOp, reduce, reduce_into};
