//! How the processes of a job meet: a small key-value store over TCP.
//!
//! One process serves ([`StoreServer`]), every rank joins ([`StoreClient`]) with the job's [`JobToken`], and
//! exchanges addresses by keys or by gathering one value of each rank. It is for meeting only: payload goes over
//! links. The store's decisions are `store`, without I/O; bytes are `frame` and `message`.
//!
//! The token keeps jobs apart and strangers out on a network that is otherwise trusted: it is sent in the clear,
//! and so is everything after it.

mod connection;
mod door;
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

pub use error::{BootstrapError, RankList};
pub(crate) use error::{Elsewhere, FrameError};
pub use message::{GATHERED_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use ports::meeting_ports;
pub use spawn::LocalRanks;
pub(crate) use spawn::end_with;
pub use spawn_error::SpawnError;
pub use store_client::{Join, StoreClient};
pub use store_server::{StoreOptions, StoreServer};
pub use token::JobToken;
