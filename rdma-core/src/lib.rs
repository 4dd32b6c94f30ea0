//! Safe, RAII verbs over libibverbs, and a software device with the same semantics.
//!
//! Open a [`Device`], make a [`ProtectionDomain`] and a [`Worker`], register memory
//! ([`LocalBuf`], [`Region`]), connect a [`QueuePair`], post [`Work`] and take [`Completion`]s.
//! libibverbs is opened at run time: nothing is needed to build, and the same program runs on a
//! NIC, on soft-RoCE and on the software device.
#![deny(unsafe_code)]

mod backend;
pub mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
pub mod memory;
mod types;
mod verbs;

pub use backend::soft::{SoftOptions, Wire, fault, interface_addresses};
pub use backend::work::{Attached, AttachedRange, Completion, Segment, Work};
pub use memory::{
    Exported, Flag, LocalBuf, Memory, PeerWindow, Quarantined, Region, Sharing, Unshared, Window, quarantined,
};
pub use types::*;
pub use verbs::*;
