//! Peers and progress: links, the engine that drives them, and how processes find each other.

pub mod bootstrap;
mod communicator;
mod engine;
pub mod env;
pub(crate) mod link;
mod liveness;
pub(crate) mod operation;

pub use communicator::{
    Aborter, Communicator, CommunicatorOptions, Output, Pending, PendingFuture, RankInfo, StillPending,
    WaitError,
};
pub(crate) use communicator::{
    Awaited, Direction, HostGroup, Job, JobOutput, Lost, MESSAGE_BYTES_MAX, PIECE_BYTES, Parts,
    Ring as RingLinks, Scratch, UNIT_BYTES, at_fault, violation,
};
pub(crate) use engine::{Core, EngineId, LaneId, Service, gid_preference};
pub use engine::{Driver, Engine, EngineOptions};
pub use link::handshake::Meet;
#[cfg(any(fuzzing, test))]
pub(crate) use liveness::Process;
