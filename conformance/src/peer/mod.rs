//! Cases across two processes, on one host or on two.
//!
//! The other process runs the same program with `--serve`; it does what it is told over a TCP
//! connection ([`protocol`]), on its own device.

mod across;
mod client;
pub mod protocol;
mod serve;

pub(crate) use across::CASES;
pub use serve::serve;
