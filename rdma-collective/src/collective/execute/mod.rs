//! The executors: they carry an operation out, over links or through the memory of a host, on borrowed slices or on
//! registered buffers.
//!
//! A call goes through these files in this order: `calls` (the caller's thread), `planning` (which algorithm and
//! protocol), `plan` (the plan as data), and then one executor: `eager` and `pipeline` in the windows of a host,
//! `zero_copy` in the peers' buffers, `link_exec` over links. `job` is an operation that owns its memory, `exec` the
//! executor of an operation that the engine drives, `stop` the reason for an early end.
//!
//! `schedule` owns the steps of the link algorithms; `call` owns the request and the layout of its buffers.

mod buffers;
mod calls;
mod eager;
mod exec;
mod header_exchange;
mod job;
mod link_exec;
mod pipeline;
mod plan;
mod planning;
mod spin;
mod stop;
mod zero_copy;

pub(super) use self::buffers::{Arithmetic, Borrowed};
pub(super) use self::job::{Job, Patience};
pub(super) use self::plan::{CachedPlan, Participants};

#[cfg(test)]
mod tests;
