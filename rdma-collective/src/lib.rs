//! Collectives and KV-cache block transfer over [`rdma_core`].
#![deny(unsafe_code)]

pub mod bootstrap;
pub mod collective;
pub mod engine;
pub mod env;
pub mod kv;
pub mod link;
#[cfg_attr(not(feature = "metrics"), doc(hidden))]
pub mod metrics;

#[cfg(test)]
#[path = "../../rdma-core/src/tests/alone.rs"]
mod alone;
mod error_text;
mod groups;
mod liveness;
mod parse_name;
mod quoted;
#[cfg(any(fuzzing, test))]
mod tests;
mod wake;

pub use parse_name::ParseNameError;
use rdma_core::log;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub use tests::fuzz as fuzzing;

/// Compiles and runs the Rust blocks of the documents, so that they stay true.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    mod readme {}
    #[doc = include_str!("../../docs/guide.md")]
    mod guide {}
    #[doc = include_str!("../../docs/layouts.md")]
    mod layouts {}
}
