//! One peer, no ranks: lanes to it, how they come to be, and what their bytes mean.
//!
//! Collectives and KV transfers both stand on this; what they say to each other in control messages and payloads is
//! theirs. The formats are written down in `docs/wire.md`.

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

pub(crate) use blob::{Blob, LinkKind};
pub use error::{BlobError, HandshakeError, LaneFailure, LaneName, PeerName};
pub use handshake::Meet;
pub(crate) use lane::{Arrival, Connection, Lane, LaneMemory, LaneOptions, Manner, OpeningLane};
pub(crate) use pulse::Patience;
