//! The bootstrap: a small key-value store over TCP, in which the processes of a job meet.
//!
//! A single process serves the store ([`StoreServer`]). Every rank joins it ([`StoreClient`]) with the job's
//! [`JobToken`], and exchanges addresses by keys, or by gathering one value of each rank. The store is for meeting
//! only; payload goes over links. [`LocalRanks`] starts the ranks of one host without a launcher; for launchers see
//! [`env`](crate::env).
//!
//! Inside, `store` makes the decisions and does no I/O, `frame` and `message` are the bytes, `serve` is the loop of the
//! server, and `by_name` is the meeting of ranks on one host by the job's name.
//!
//! The token keeps strangers out, on a network that is otherwise trusted: it is sent in the clear, and so is everything
//! after it. The job number, which the server draws, keeps two jobs with one token apart.

mod by_name;
mod connection;
mod error;
mod frame;
#[cfg(any(fuzzing, test))]
#[path = "tests/fuzz.rs"]
pub(crate) mod fuzz;
mod message;
mod ports;
mod serve;
mod spawn;
mod spawn_error;
mod store;
mod store_client;
mod store_server;
#[cfg(test)]
mod tests;
mod token;

pub(crate) use connection::notice_vanishing;
pub(crate) use error::MixedJobsKind;
pub use error::{BootstrapError, MixedJobs, RankList};
pub(crate) use error::{Elsewhere, FrameError};
pub use message::{GATHERED_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use ports::meeting_ports;
pub(crate) use serve::is_exhausted;
pub use spawn::LocalRanks;
pub(crate) use spawn::end_with;
pub use spawn_error::SpawnError;
pub use store_client::{Join, StoreClient};
pub(crate) use store_server::from_this_host;
pub use store_server::{StoreOptions, StoreServer};
pub use token::JobToken;
