//! The progress of transfers, and their outcomes.

use std::sync::Arc;
use std::time::Duration;

use super::verdict::Verdicts;
use crate::kv::KvError;

/// The progress of a transfer.
///
/// Returned by [`Transfer::progress`](crate::kv::Transfer::progress).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes that are known to have arrived.
    pub bytes_arrived: u64,
    /// Bytes of the transfer.
    pub bytes: u64,
    /// Writes that are known to have arrived.
    pub writes_arrived: u32,
    /// Writes of the transfer; 0 before they are known, because a grant learns them from the peer.
    pub writes: u32,
}

/// The outcome of a transfer that has ended well: every block has arrived.
///
/// Returned by [`Grant::wait`](crate::kv::Transfer::wait); the module [`kv`](crate::kv) has an example.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// The verdict on each block. On a link with checksums some can be
    /// [`Corrupt`](super::BlockVerdict::Corrupt), and the transfer is `Ok` all the same: look at
    /// [`Verdicts::all_valid`].
    pub verdicts: Verdicts,
    /// The [note](crate::kv::Request::note) of prefill; empty if it left none. Of several sources, the first one's that
    /// left one.
    pub note: Vec<u8>,
    /// Bytes that have arrived.
    pub bytes: u64,
    /// Writes, or reads of a pull, that carried the bytes.
    pub writes: u32,
    /// Time from the grant to the arrival of the last block.
    pub elapsed: Duration,
    /// Time from the announcement of the writes to the arrival of the last block.
    pub moving: Duration,
}

/// The outcome of a push that decode has confirmed, or of an offer that decode has read: its blocks may be used for
/// something else.
///
/// Returned by [`Push::wait`](crate::kv::Transfer::wait).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sent {
    /// The [note](crate::kv::Request::note) of decode; empty if it left none.
    pub note: Vec<u8>,
    /// Bytes moved.
    pub bytes: u64,
    /// Writes, or reads of an offer, that moved the bytes.
    pub writes: u32,
    /// Corrupt blocks, summed over all layers, among those that decode has checked. 0 on a link without checksums. On
    /// a link with checksums decode may stop checking at its deadline, and then the rest is not counted.
    pub corrupt: u32,
    /// Time from the push meeting its grant to the confirmation, or from the offer to its release.
    pub elapsed: Duration,
}

/// The error of a transfer that did not complete, with a verdict for each block. None of its bytes land any more,
/// unless the cause is [`KvError::Quarantined`], [`KvError::Engine`] or [`KvError::LinkEnded`].
#[derive(Clone, thiserror::Error)]
#[error("{cause}")]
pub struct TransferError {
    /// The reason why the transfer ended.
    #[source]
    pub cause: Arc<KvError>,
    /// The verdicts: blocks that have arrived all the same are valid.
    pub verdicts: Verdicts,
}
