//! Collectives and KV-cache block transfer over [`rdma_core`].
#![deny(unsafe_code)]

pub mod collective;
pub mod comm;
pub mod error;
pub mod kv;

#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
mod groups;
#[cfg(test)]
mod netsim;
#[cfg(test)]
mod soak;
