//! A device in software: reliable connections between queue pairs of this process, in shared memory, or over TCP.
//!
//! The files are those of the other backend. Beside them: [`engine`] is the protocol, [`wire`]
//! carries its messages, [`fabric`] holds all devices of the process behind one lock, and
//! [`driver`] is the thread that serves timers and sockets.

mod channel;
mod cq;
mod device;
mod driver;
mod engine;
mod event;
mod shared_exports;
mod fabric;
pub mod fault;
mod gid;
mod mr;
mod naps;
mod options;
mod pd;
mod port;
mod post;
mod qp;
mod random;
mod mapped_access;
#[cfg(test)]
mod tests;
mod wire;
mod worker;

pub(crate) use device::{Context, Device};
pub use gid::interface_addresses;
pub use options::{SoftOptions, Wire};
pub(crate) use pd::ProtectionDomain;
pub(crate) use worker::Worker;

#[cfg(fuzzing)]
pub(crate) use wire::{fuzz, rendezvous_fuzz};
