//! Metrics: what a recorder is told beside the library's own statistics, and the files that name metrics.

#[path = "../common/mod.rs"]
mod common;
mod documents;
#[cfg(feature = "metrics")]
mod figures;
#[path = "../pair/mod.rs"]
mod pair;
#[path = "../world/mod.rs"]
mod world;
