//! Processes of the same host, whose end the kernel tells at once.
//!
//! What goes over lanes (signs of life, and their absence) is `link`'s; what a death means for whoever waits is the
//! engine's.

mod deaths;
mod process;

pub(crate) use deaths::{Deaths, Sign};
pub(crate) use process::{Process, Watch};
