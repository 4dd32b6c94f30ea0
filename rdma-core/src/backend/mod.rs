//! What carries work requests out: libibverbs, or a device in software.
//!
//! The seam is cut at work requests. Above it [`Worker`](worker::Worker) takes owned buffers,
//! keeps them in [`in_flight`] tables until the device is done with them and gives them back;
//! below it the two backends see addresses and keys ([`interface`]). No packet and no C struct
//! crosses it. Everything that `unsafe` code trusts (which buffer is in flight, which key names
//! which memory) lives in this folder, once for both backends.

pub(crate) mod dispatch;
pub(crate) mod ibverbs;
mod in_flight;
pub(crate) mod interface;
pub(crate) mod register;
pub(crate) mod soft;
pub(crate) mod work;
pub(crate) mod worker;
