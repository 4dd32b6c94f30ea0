//! The request that a transfer is begun for: its id, in all forms that servers have, and the note that goes with it.

use std::sync::Arc;
use std::time::Duration;

use super::gauge::Permit;
use super::journal::TransferKind;
use super::note::{NOTE_BYTES_MAX, Note};
use crate::kv::{KvError, RequestId};

/// The request that a transfer is begun for.
///
/// Every call that takes a `Request` takes an id alone, too: a number, a string or a [`RequestId`]. An id of no bytes,
/// or of more than 64, is refused by the call that it is given to.
///
/// ```
/// use rdma_collective::kv::Request;
/// // Prefill sends decode the first token with the blocks.
/// let request = Request::new("chatcmpl-7b1d").note(&42_u32.to_le_bytes());
/// ```
///
/// The argument of [`Prefill::push`](super::Prefill::push), [`Decode::grant`](super::Decode::grant) and their sisters.
#[derive(Clone, Debug)]
pub struct Request {
    /// The id, or the length of bytes that are none.
    id: Result<RequestId, usize>,
    /// The note, or the length of one that is too long.
    note: Result<Note, usize>,
    /// The cap, if it is not that of the link.
    keep_alive: Option<Duration>,
}

/// A request, checked, for a kind of transfer.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) kind: TransferKind,
    pub(super) request: RequestId,
    pub(super) note: Note,
    pub(super) keep_alive: Option<Duration>,
    /// The room that a node has given the transfer.
    pub(super) permit: Option<Arc<Permit>>,
}

impl Request {
    /// A request with this id and no note.
    #[must_use]
    pub fn new(id: impl Into<Self>) -> Self {
        id.into()
    }

    /// Leaves the peer a note of up to 64 KiB, which it gets with the outcome: [`Received::note`](super::Received) or
    /// [`Sent::note`](super::Sent). So a note arrives once, after the blocks, or not at all if the transfer fails.
    ///
    /// The library does not look at the bytes. A longer note is refused by the call that the request is given to.
    #[must_use]
    pub fn note(self, bytes: &[u8]) -> Self {
        let note = if bytes.len() > NOTE_BYTES_MAX { Err(bytes.len()) } else { Ok(Note::new(bytes)) };
        Self { note, ..self }
    }

    /// Promises a note that [`Push::set_note`](super::Push::set_note) gives while the push is under way, because the
    /// first token is known only after the last layer. Takes the place of a [`note`](Self::note) given before.
    ///
    /// The push is not done before its note is set. Without one, the push fails at its deadline with
    /// [`KvError::NoteMissing`], even though all of its blocks have arrived. Only pushes promise notes: every other
    /// call refuses the request by [`KvError::NotePromised`].
    #[must_use]
    pub fn note_later(self) -> Self {
        Self { note: Ok(Note::Later), ..self }
    }

    /// Keeps the transfer alive: while the peer gives signs of life, the library moves the deadline of the transfer by
    /// itself, to as long after the last sign as the transfer was begun before its deadline, and at most to `cap` after
    /// the begin. Takes the place of [`LinkOptions::keep_alive`](super::LinkOptions); zero keeps nothing alive.
    ///
    /// A server gives each transfer a short deadline, so that what a lost peer has is free again soon, and a cap as
    /// long as the slowest prefill. A period shorter than three [heartbeats](crate::engine::EngineOptions::heartbeat)
    /// counts as three. The trap: a peer whose engine has [no thread](crate::engine::Driver::Caller) gives signs only
    /// while its callers drive.
    ///
    /// Each end has a deadline of its own, so keep both alive. A peer that has not met the grant or the offer yet is
    /// told how long it lives. [`Transfer::extend`](super::Transfer::extend) may go beyond the cap.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use rdma_collective::kv::{Decode, Grant, KvError, Request};
    /// # use rdma_core::Deadline;
    /// fn begin(decode: &Decode, id: &str) -> Result<Grant, KvError> {
    ///     // Blocks of a prefill that is gone are back after 2 s, and a long prompt may take 5 minutes.
    ///     let request = Request::new(id).keep_alive(Duration::from_secs(300));
    ///     decode.grant(request, &[3, 1], Deadline::after(Duration::from_secs(2)))
    /// }
    /// ```
    #[must_use]
    pub fn keep_alive(self, cap: Duration) -> Self {
        Self { keep_alive: Some(cap), ..self }
    }

    fn of(id: &[u8]) -> Self {
        Self::with(RequestId::of(id).ok_or(id.len()))
    }

    fn with(id: Result<RequestId, usize>) -> Self {
        Self { id, note: Ok(Note::default()), keep_alive: None }
    }

    pub(super) fn id(&self) -> Result<RequestId, KvError> {
        self.id.map_err(|bytes| KvError::RequestIdLength { bytes })
    }

    /// The request for a transfer of this kind, or the error of the call that it was given to.
    pub(super) fn asked(self, kind: TransferKind) -> Result<Asked, KvError> {
        let request = self.id()?;
        let note = self.note.map_err(|bytes| KvError::NoteLength { bytes })?;
        if note.is_later() && !matches!(kind, TransferKind::Push | TransferKind::Stream) {
            return Err(KvError::NotePromised { request });
        }
        Ok(Asked { kind, request, note, keep_alive: self.keep_alive, permit: None })
    }
}

impl Asked {
    /// The request with the room that a node has given it.
    pub(super) fn with(self, permit: Permit) -> Self {
        Self { permit: Some(Arc::new(permit)), ..self }
    }
}

impl From<RequestId> for Request {
    fn from(id: RequestId) -> Self {
        Self::with(Ok(id))
    }
}

impl From<&[u8]> for Request {
    fn from(id: &[u8]) -> Self {
        Self::of(id)
    }
}

impl From<&str> for Request {
    fn from(id: &str) -> Self {
        Self::of(id.as_bytes())
    }
}

impl From<&String> for Request {
    fn from(id: &String) -> Self {
        Self::of(id.as_bytes())
    }
}

macro_rules! from_numbers {
    ($($number:ident),*) => {$(
        impl From<$number> for Request {
            fn from(number: $number) -> Self {
                Self::of(number.to_string().as_bytes())
            }
        }
    )*};
}

// A literal is an `i32` where several numbers would do.
from_numbers!(u32, u128, usize, i32, i64);

impl From<u64> for Request {
    fn from(number: u64) -> Self {
        RequestId::from(number).into()
    }
}
