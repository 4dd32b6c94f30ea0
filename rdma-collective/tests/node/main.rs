//! KV nodes: peers that are found by their blobs, come and go, and whose links are made when they are needed.

mod admission;
mod bad_input;
mod closed;
#[path = "../common/mod.rs"]
mod common;
#[path = "../connectors/mod.rs"]
mod connectors;
mod job;
mod meet;
mod moves;
mod one_pool;
#[path = "../pair/mod.rs"]
mod pair;
mod processes;
mod rails;
mod requests;
mod runtimes;
mod storm;
