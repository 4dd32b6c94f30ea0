//! Peers and progress: links, the engine that drives them, and how processes find each other.

pub mod bootstrap;
mod communicator;
mod engine;
pub mod env;
pub(crate) mod link;
mod liveness;
pub(crate) mod operation;

pub use communicator::{
    Aborter, Algorithm, Algorithms, Communicator, CommunicatorOptions, Output, Pending, PendingFuture,
    RankInfo, StillPending, UnknownAlgorithm, WaitError, tuning,
};
pub(crate) use communicator::{
    Among, Awaited, Boxes, Direction, HostGroup, Job, JobOutput, Link, Looks, Lost, NEAR_BYTES, Near, Origin,
    PIECE_BYTES, Parent, Parts, RANKS_MAX, Reach, Rendezvous, Ring as RingLinks, Scratch, UNIT_BYTES, Unlike,
    Unlinked, VERDICT_BYTES, at_fault, link_geometry, message_bytes_max, violation, word_bytes,
};
#[cfg(any(fuzzing, test))]
pub(crate) use communicator::{find_blob, tuning::fuzz as fuzz_tuning};
pub(crate) use engine::{Core, EngineId, LEFT_FOR, LaneId, Service, gid_preference};
pub use engine::{Driver, Engine, EngineOptions};
pub use link::handshake::Meet;
#[cfg(any(fuzzing, test))]
pub(crate) use liveness::Process;
