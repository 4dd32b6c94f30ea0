//! The link to one peer: lanes, the handshake that sets them up, mailboxes, and the meaning of the bytes on them.
//!
//! Nothing here knows ranks or operations. Collectives and KV transfers both use links; the control messages and
//! payloads that they exchange are theirs. The formats are specified in `docs/wire.md`.

pub(crate) mod blob;
pub(crate) mod codec;
pub(crate) mod control;
mod credit;
mod error;
pub(crate) mod handshake;
pub(crate) mod imm;
mod lane;
pub(crate) mod mailbox;
mod pulse;
mod rails;

#[cfg(test)]
pub(crate) use blob::PAYLOAD_BYTES_MAX;
pub(crate) use blob::{Blob, LinkKind};
pub use error::{BlobError, HandshakeError, LaneFailure, LaneName, NamedPeer, PeerName};
pub use handshake::Meet;
pub(crate) use lane::{
    Arrival, ConnectOverrides, Connection, Lane, LaneMemory, LaneOptions, OpeningLane, Received, Unsent,
};
pub(crate) use pulse::Patience;
pub(crate) use rails::{AttachedOnRails, FIRST_RAIL, RAILS_MAX, RangeOnRails};
