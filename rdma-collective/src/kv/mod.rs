//! KV-cache blocks: pools of them, and their transfer from where they were computed to where they are used.
//!
//! Decode [grants](Decode::grant) blocks of its pool to a request, prefill [pushes](Prefill::push) those that it has of the
//! request, and decode learns of each block whether it is there. Where blocks lie is [`layout`]'s, which writes carry
//! them is [`plan`]'s; links and progress are `comm`'s.

mod checksum;
mod decode;
pub mod layout;
mod lease;
mod link;
mod message;
pub mod plan;
mod pool;
mod prefill;
mod push;
mod receive;
mod verdict;

#[cfg(any(fuzzing, test))]
pub(crate) use message::fuzz;

pub use decode::{Decode, Grant, Progress, Received};
pub use lease::HoldKind;
pub use link::LinkOptions;
pub use pool::{Pool, PoolUse};
pub use prefill::{Prefill, Push, Pushed};
pub use verdict::{BlockVerdict, Verdicts};
