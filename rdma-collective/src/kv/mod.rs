//! KV-cache blocks: where they lie in a pool, and which writes carry those of a request to another pool.
//!
//! Everything here is pure so far: offsets and descriptors, no memory and no peer.

pub mod layout;
pub mod plan;
