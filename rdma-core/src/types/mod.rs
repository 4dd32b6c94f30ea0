//! Plain values of the field: no I/O, no ownership, no `unsafe`.
//!
//! A value that a device reports is an integer newtype with constants, so that a number
//! nobody has met yet is printed instead of being undefined behaviour. Only what we ask
//! for ourselves (a request, an option) is an enum.

mod access;
mod address;
mod attributes;
mod completion;
mod deadline;
mod gid;
mod key;
mod mtu;
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
pub use gid::{Gid, GidEntry, GidType};
pub use key::{LocalKey, RemoteKey, RemoteMemory};
pub use mtu::Mtu;
pub use number::{PortNum, Psn, QpNum};
pub use options::{InitOptions, PathOptions, QueuePairOptions, RetryOptions, WorkerOptions};
pub use refused::Refused;
pub use status::CompletionStatus;
pub use timing::{AckTimeout, RnrRetry, RnrTimer};
