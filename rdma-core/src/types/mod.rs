//! Plain values of the verbs: no I/O, no ownership, no `unsafe`.
//!
//! A value that a device reports is an integer newtype with constants and never a Rust enum. A number that
//! this crate does not know is then printed, where an enum with an invalid value would be undefined
//! behaviour. Values that only the caller chooses (a request, an option) are enums.

mod access;
mod address;
mod attributes;
mod completion;
mod deadline;
mod details;
mod gid;
mod key;
mod mtu;
mod name_filter;
mod names;
mod number;
mod options;
mod refused;
mod status;
mod timing;

pub use access::Access;
pub use address::{Endpoint, Lid, PeerAccess};
pub use attributes::{
    AsyncEvent, DeviceAttributes, EventKind, LinkLayer, PortAttributes, PortState, QpState,
};
pub use completion::{Failure, Opcode, Success, WorkId};
pub use deadline::Deadline;
pub use details::{DeviceDetails, PortDetails};
pub use gid::{Gid, GidEntry, GidType};
pub use key::{LocalKey, RemoteKey, RemoteMemory};
pub use mtu::Mtu;
pub use name_filter::NameFilter;
pub use number::{PortNum, Psn, QpNum};
pub use options::{InitOptions, PathOptions, QueuePairOptions, RetryOptions, WorkerOptions};
pub use refused::Refused;
pub use status::CompletionStatus;
pub use timing::{AckTimeout, RnrRetry, RnrTimer};
