//! Peers and progress: links, the engine that drives them, and how processes find each other.

pub mod bootstrap;
mod communicator;
#[allow(dead_code, reason = "what KV links use lands with them")]
mod engine;
#[allow(dead_code, reason = "what KV links use lands with them")]
pub(crate) mod link;
pub(crate) mod operation;

pub use communicator::{Communicator, CommunicatorOptions, RankInfo};
pub(crate) use communicator::{Parts, Ring as RingLinks};
pub(crate) use engine::{Core, LaneId};
pub use engine::{Engine, EngineOptions};
