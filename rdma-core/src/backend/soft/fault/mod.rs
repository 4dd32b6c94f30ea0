//! Fault injection for software devices: what networks and peers do wrong, reproducibly.
//!
//! A [`FaultPlan`] is given to a device in [`SoftOptions::faults`](crate::SoftOptions). It acts on the messages that
//! *arrive* at that device: requests at its responders, replies and read data at its requesters. Give the same plan to
//! both ends to disturb both directions.
//!
//! Each [`Rule`] has a [`Fault`], the messages it looks at, and when it strikes. All chance comes from the seed of the
//! plan. A plan also takes orders at any moment ([`FaultPlan::kill`], [`FaultPlan::stop`], [`FaultPlan::flap_port`]),
//! and counts what it did.
//!
//! Another process that has mapped the memory of a device ([`Wire::Mapped`](crate::Wire)) sends it no messages, so no
//! rule sees its accesses. Within one process, rules strike on this wire, too.
//!
//! ```
//! use std::time::Duration;
//! use rdma_core::fault::{Fault, FaultPlan, Rule};
//! use rdma_core::{Access, Deadline, Device, SoftOptions, Work, WorkerOptions, loopback};
//!
//! // The first request is lost; when the acknowledgement timer expires it is sent again.
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

mod inject;
mod injected;
mod plan;
pub(crate) mod planted;
mod rule;

pub(super) use inject::{DelayedMessage, Message};
pub(super) use injected::Injected;
pub use plan::{FaultCounts, FaultPlan};
#[doc(hidden)]
#[cfg(feature = "planted")]
pub use planted::{Planted, plant};
pub use rule::{Fault, Messages, Rule};
