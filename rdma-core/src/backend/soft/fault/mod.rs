//! Faults on demand, for software devices: what a network and its peers do wrong, reproducibly.
//!
//! A [`FaultPlan`] is handed to a device in [`SoftOptions::faults`](crate::SoftOptions), and
//! acts on what *arrives* at that device: requests at its responders, replies and read data at
//! its requesters. Give the same plan to both ends to disturb both directions. Each [`Rule`]
//! names a [`Fault`], which messages it looks at, and when it strikes; all chance comes from
//! the plan's seed. Nothing arrives from another process that has the device's memory mapped
//! ([`Wire::Mapped`](crate::Wire)). The plan also takes orders at any moment ([`FaultPlan::kill`],
//! [`FaultPlan::stop`], [`FaultPlan::flap_port`]) and counts what it did.
//!
//! ```
//! use std::time::Duration;
//! use rdma_core::fault::{Fault, FaultPlan, Rule};
//! use rdma_core::{Access, Deadline, Device, SoftOptions, Work, WorkerOptions, loopback};
//!
//! // The first request is lost; the acknowledgement timer brings it again.
//! let faults = FaultPlan::seeded(7).with(Rule::new(Fault::Drop).times(1));
//! let device = Device::soft(SoftOptions { faults: Some(faults.clone()), ..SoftOptions::default() });
//! let context = device.open()?;
//! let pd = context.alloc_pd()?;
//! let mut worker = context.worker(WorkerOptions::default())?;
//! let (left, _right) = loopback(&mut worker, &pd)?;
//! let target = pd.alloc_region(8, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! worker.post(&left, Work::write(pd.alloc_local(8)?, target.remote()))?;
//! worker.wait(Deadline::after(Duration::from_secs(30)))?.result?;
//! assert_eq!(faults.counts().dropped, 1);
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```

mod counts;
mod inject;
mod plan;
mod planted;
mod rule;
mod seed;

pub use counts::FaultCounts;
pub(super) use inject::{DelayedMessage, Injected, Message, byte_of, flip};
pub use plan::FaultPlan;
#[doc(hidden)]
pub use planted::Planted;
pub use rule::{Fault, Messages, Rule};
