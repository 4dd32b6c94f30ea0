//! Transfers of KV blocks between two ends in one process, by what is asked of them. One executable, since linking each
//! part by itself takes longer than it runs; what counts what its process has, or measures times, has one of its own.

#[path = "../common/mod.rs"]
mod common;
#[path = "../pair/mod.rs"]
mod pair;

mod awaited;
mod bad_input;
mod beside;
mod dropped;
mod export;
mod extended;
mod faulty;
mod handle;
mod late;
mod layers;
mod layers_sent;
mod many;
mod notes;
mod order;
mod pools;
mod prefix;
mod pull;
mod revoke;
mod revoking;
mod setup;
mod stats;
mod trouble;
mod verdicts;
