//! The verbs that users call: devices, protection domains, memory, workers and queue pairs.
//!
//! This folder contains no `unsafe` and names no backend, because `backend` tells NICs and the software
//! device apart.

mod context;
mod device;
pub mod gid;
mod peer_slice;
mod protection_domain;
mod queue_pair;
mod worker;

pub use context::Context;
pub use device::{Device, DeviceList};
pub use peer_slice::PeerSlice;
pub use protection_domain::ProtectionDomain;
pub use queue_pair::{
    Init, Posting, QueuePair, ReadyToReceive, ReadyToSend, Receiving, Reset, State, loopback,
};
pub use worker::{Batch, Worker};
