//! What a requester wants done, one thing at a time.

use super::message::Request;
use crate::backend::interface::RawCompletion;

/// Where the payload of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    /// Names the request for as long as it has not completed.
    pub(crate) serial: u64,
}

/// See [`Requester::poll_effect`](super::requester::Requester::poll_effect).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    /// Send this to the peer; without payload for a read or a length of 0.
    Transmit { request: Request, payload: Option<Source> },
    /// Forget what was handed out and is not on its way yet: it will be transmitted again.
    Rewind,
    /// A request of the send queue is over.
    Complete(RawCompletion),
}
