//! Communicators and their collectives between ranks in one process.
//!
//! A single executable for all, because linking each part by itself takes longer than running it. Tests that count the
//! resources of their process, or measure time, are executables of their own.

#[path = "../common/mod.rs"]
mod common;
#[path = "../world/mod.rs"]
mod world;

mod algorithms;
mod all_reduce;
mod barrier;
mod beyond_caches;
mod deferred;
mod eager;
mod group;
mod hosts;
mod joining;
mod links;
mod mismatch;
mod numerics;
mod pending;
mod pipeline;
mod queued;
mod send_only;
mod send_recv;
mod setup;
mod split;
mod uneven;
mod zero_copy;
