//! Backends: libibverbs, and a software device. Both carry work requests out.
//!
//! The seam between the API and a backend is cut at work requests. Above it [`worker::WorkerCore`] takes owned
//! buffers, keeps them in [`in_flight`] rings until the device is done with them, and gives them back. Below it a
//! backend sees addresses and keys ([`interface`]). No packet and no C struct crosses the seam.
//!
//! This folder holds everything that `unsafe` code trusts (which buffer is in flight, which key names which memory),
//! once for both backends. The types that users see are in [`verbs`](crate::verbs) and [`memory`](crate::memory).

pub(crate) mod dispatch;
pub(crate) mod ibverbs;
mod in_flight;
pub(crate) mod interface;
pub(crate) mod register;
pub(crate) mod soft;
pub(crate) mod work;
pub(crate) mod worker;
