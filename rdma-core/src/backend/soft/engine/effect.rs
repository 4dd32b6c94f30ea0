//! Effects: what a requester asks its wire to do, one at a time.

use super::message::Request;
use crate::CompletionStatus;
use crate::backend::interface::RawCompletion;

/// Bytes of a request in the memory of the requester: the payload to be sent, or the target of a read's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    /// The serial of the request, by which the wire asks whether it may still use the memory.
    pub(crate) serial: u64,
}

/// The completion of a failed request.
pub(crate) fn failed(wr_id: u64, status: CompletionStatus) -> RawCompletion {
    RawCompletion { wr_id, status: status.0, ..RawCompletion::default() }
}

/// An effect, from [`Requester::poll_effect`](super::requester::Requester::poll_effect).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    /// Send a request to the peer; without payload for a read or a length of 0.
    Transmit { request: Request, payload: Option<Buffer> },
    /// Drop the requests that were handed out and are not on their way yet: they are transmitted again.
    Rewind,
    /// Report a completed request of the send queue.
    Complete(RawCompletion),
}
