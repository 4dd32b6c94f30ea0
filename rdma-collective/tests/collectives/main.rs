//! Communicators and their collectives between ranks in one process, by what is asked of them. One executable, since
//! linking each part by itself takes longer than it runs; what counts what its process has, or measures times, has one
//! of its own.

#[path = "../common/mod.rs"]
mod common;
#[path = "../world/mod.rs"]
mod world;

mod algorithms;
mod all_reduce;
mod apart;
mod barrier;
mod beyond_caches;
mod direct;
mod flat;
mod givers;
mod group;
mod hosts;
mod joining;
mod mesh;
mod mismatch;
mod numerics;
mod pending;
mod pieces;
mod points;
mod queued;
mod setup;
mod split;
mod uneven;
