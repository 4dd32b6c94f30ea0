//! Choice of the GID that a queue pair sends from.
//!
//! Index 0 is a bad default: on RoCE that entry is usually link-local, or RoCE v1. [`choose()`] takes an entry
//! that routers forward and whose interface is in this network namespace. It also reports why each other
//! entry was rejected.

mod choose;

pub use choose::{AddressFamily, Chosen, Preference, choose};
