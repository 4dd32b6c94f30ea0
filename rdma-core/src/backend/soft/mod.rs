//! The software device: reliable connections inside a process, in shared memory, or over TCP, without any hardware.
//!
//! The files have the names of the other backend's. Beside them, [`engine`] is the protocol, without clock and I/O;
//! [`wire`] carries its messages; [`fabric`] holds the state of all devices of the process behind one lock;
//! [`driver`] is the thread that serves timers and sockets; [`shared_exports`] is the memory that other processes map.

mod channel;
mod clock;
mod cq;
mod device;
mod driver;
mod engine;
mod event;
mod fabric;
pub mod fault;
mod gid;
mod limits;
mod mapped_access;
mod mr;
mod naps;
mod options;
mod pd;
mod port;
mod post;
mod qp;
mod random;
mod shared_exports;
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
