//! Peers and progress: links, the engine that drives them, and how processes find each other.

pub mod bootstrap;
mod communicator;
mod engine;
pub(crate) mod link;
pub(crate) mod operation;

pub use communicator::{Communicator, CommunicatorOptions, RankInfo};
pub(crate) use communicator::{Parts, Ring as RingLinks};
pub(crate) use engine::{Core, LaneId, Service};
pub use engine::{Engine, EngineOptions};
pub use link::handshake::Meet;
