//! Detection of dead processes by the kernel: names of processes, and descriptors that tell when they end.
//!
//! A death is known at once, without a timeout. Heartbeats over lanes, and silence, are `link`'s (they also find a
//! process that is stopped or cut off); what a death means for the operations that wait is the engine's.

mod deaths;
mod process;

pub(crate) use deaths::{Deaths, Sign};
pub(crate) use process::{EXIT_WITHIN, Process, Watch};
