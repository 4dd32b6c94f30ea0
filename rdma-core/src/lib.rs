//! RDMA verbs that safe code cannot misuse, over libibverbs or over a software device with the same
//! semantics.
//!
//! libibverbs is opened at run time, so nothing but Rust is needed to build. The same program runs on a NIC,
//! on the kernel's soft-RoCE and, without any RDMA hardware or driver, on the software device.
//!
//! ```
//! use std::time::Duration;
//! use rdma_core::{Access, Deadline, Device, SoftOptions, Work, WorkerOptions, loopback};
//!
//! let context = Device::soft(SoftOptions::default()).open()?;
//! let pd = context.alloc_pd()?;
//! let mut worker = context.worker(WorkerOptions::default())?;
//! let (queue_pair, _peer) = loopback(&mut worker, &pd)?;
//!
//! // The target: peers may write it, so its bytes are copied out and never borrowed.
//! let target = pd.alloc_region(5, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! // The source: posting moves it into the worker, and the completion gives it back.
//! let mut source = pd.alloc_local(5)?;
//! source.copy_from_slice(b"hello");
//! worker.post(&queue_pair, Work::write(source, target.remote()))?;
//! worker.wait(Deadline::after(Duration::from_secs(5)))?.result?;
//!
//! let mut arrived = [0; 5];
//! target.copy_out(0, &mut arrived)?;
//! assert_eq!(&arrived, b"hello");
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! `cargo run -p rdma-core --example write` is the longer version: it takes the best device of the host and
//! connects two queue pairs by their exchanged [`Endpoint`]s.
//!
//! | you want to | use | libibverbs calls it |
//! |---|---|---|
//! | open a device | [`DeviceList`], [`Device`], [`Context`] | `ibv_open_device(3)` |
//! | register memory for this process alone | [`LocalBuf`], [`ProtectionDomain`] | `ibv_reg_mr(3)` |
//! | register memory for peers | [`Region`], [`RemoteMemory`] | `ibv_reg_mr(3)` |
//! | connect to a peer | [`QueuePair`], [`Endpoint`], [`gid::choose`] | `ibv_modify_qp(3)` |
//! | post requests, take completions | [`Worker`], [`Work`], [`Completion`] | `ibv_post_send(3)`, `ibv_poll_cq(3)` |
//! | access memory of a peer on this host | [`PeerSlice`], [`PeerWindow`] | |
//! | learn why registering failed | [`memory::pinning`] | |
//! | learn what is wrong with the machine | [`doctor`] | `ibv_devinfo(1)`, `ibstat(8)` |
//!
//! Every wait takes a [`Deadline`]. Every [`error`] says what happened and what to do about it. Only
//! `backend` and `memory` contain `unsafe` code.
#![deny(unsafe_code)]

#[cfg(test)]
#[path = "tests/alone.rs"]
mod alone;
mod backend;
pub mod doctor;
pub mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
#[path = "tests/fuzzing.rs"]
pub mod fuzzing;
#[doc(hidden)]
pub mod log;
pub mod memory;
#[cfg_attr(not(feature = "metrics"), doc(hidden))]
pub mod metrics;
#[doc(hidden)]
pub mod strangers;
mod types;
mod verbs;

pub use backend::soft::{SoftOptions, Wire, fault, interface_addresses};
pub use backend::work::{Attached, AttachedRange, Completion, Segment, Work};
pub use memory::{
    Exported, Flag, LocalBuf, Memory, PeerWindow, Quarantined, Region, Sharing, Unshared, Window, quarantined,
};
pub use types::*;
pub use verbs::*;
