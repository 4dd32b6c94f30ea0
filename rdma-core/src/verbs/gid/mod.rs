//! Choosing the GID that a queue pair sends from.
//!
//! Index 0 is a habit that hurts: on RoCE it is usually link-local, or RoCE v1. [`choose`]
//! takes the entry that a router would pass on and whose interface is in this network
//! namespace, and keeps the others with the reason for which each was rejected.

mod choose;

pub use choose::{AddressFamily, Chosen, Preference, choose};
