//! Cases across two processes, on one host or on two.
//!
//! The peer is the same program, started with `--serve`. It takes orders over a TCP connection ([`protocol`]) and
//! carries them out on its own device.

mod across;
mod client;
pub mod protocol;
mod serve;

pub(crate) use across::CASES;
pub use serve::serve;
