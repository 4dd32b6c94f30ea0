//! The sending half of a connection: a queue of frames, whose payload is sent from where it is, without a copy.

#![expect(unsafe_code, reason = "hands the ranges of payloads to the kernel")]

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use super::super::{Payload, Sink, Token};
use super::frame::HELLO_BYTES;
use super::link::LinkError;
use super::socket;

/// Most frames that may wait. The state sends no more than its queues are deep, and a connection that exceeds this is
/// closed.
const FRAMES_MAX: usize = 1 << 16;

/// Frames sent in one system call.
const BATCH: usize = 32;

/// Zeros sent in place of a payload that may not be read any more and that the peer will drop.
static FILLER: [u8; 16 << 10] = [0; 16 << 10];

/// The kind of a frame, as far as its place among others depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// The peer understands no request without it.
    Hello,
    Request,
    /// An acknowledgement. The next one says everything that this one does, so it may replace this one.
    Ack,
    /// Another reply.
    Reply,
}

/// A frame to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    header: [u8; HELLO_BYTES],
    header_len: usize,
    payload: Option<Payload>,
    class: Class,
}

impl Outgoing {
    pub(super) fn new(bytes: &[u8], payload: Option<Payload>, class: Class) -> Self {
        let mut header = [0; HELLO_BYTES];
        header[..bytes.len()].copy_from_slice(bytes);
        Self { header, header_len: bytes.len(), payload, class }
    }

    /// Whether the frame answers a request of the peer.
    fn is_reply(&self) -> bool {
        matches!(self.class, Class::Ack | Class::Reply)
    }

    /// Bytes of header and payload.
    fn len(&self) -> usize {
        self.header_len + self.payload.map_or(0, |payload| payload.len as usize)
    }

    fn token(&self) -> Option<Token> {
        self.payload.map(|payload| payload.token)
    }

    /// Whether the payload, if any, may still be read.
    fn valid(&self, sink: &dyn Sink) -> bool {
        self.token().is_none_or(|token| sink.still_valid(token))
    }

    /// Whether the peer will drop the payload: an acknowledgement came while it was being sent again.
    fn is_already_delivered(&self, sink: &dyn Sink) -> bool {
        self.token().is_some_and(|token| sink.carried_out(token))
    }
}

/// The sender of one connection.
#[derive(Debug, Default)]
pub(super) struct Outflow {
    /// Replies stand in front, except that the first frame may be partly sent. They must not wait behind the requests
    /// of this end: the peer may need them before it can take these.
    queue: VecDeque<Outgoing>,
    /// Bytes of the first frame that were sent.
    sent: usize,
    /// Bytes of a request were sent since the last call of [`take_moved`](Self::take_moved).
    moved: bool,
}

impl Outflow {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::with_capacity(2 * BATCH), ..Self::default() }
    }

    /// Queues a frame: a reply behind the other replies, anything else at the end. An acknowledgement replaces the one
    /// before it, if no byte of that was sent: it says everything that the other does, and acknowledgements would pile
    /// up otherwise.
    ///
    /// # Errors
    ///
    /// [`LinkError::TooManyFrames`].
    pub(super) fn push(&mut self, frame: Outgoing) -> Result<(), LinkError> {
        let begun = usize::from(self.sent > 0);
        let at = if frame.is_reply() { self.replies().max(begun) } else { self.queue.len() };
        if frame.class == Class::Ack
            && at > begun
            && let Some(last) = self.queue.get_mut(at - 1).filter(|last| last.class == Class::Ack)
        {
            *last = frame;
            return Ok(());
        }
        if self.queue.len() >= FRAMES_MAX {
            return Err(LinkError::TooManyFrames);
        }
        self.queue.insert(at, frame);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Frames in front of the first request that is not partly sent.
    pub(super) fn replies(&self) -> usize {
        let begun = usize::from(self.sent > 0);
        begun + self.queue.iter().skip(begun).take_while(|frame| frame.is_reply()).count()
    }

    /// Whether bytes of a request were sent since the last call.
    pub(super) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Drops the requests of which no byte was sent.
    pub(super) fn drop_unsent(&mut self) {
        let mut begun = self.sent > 0;
        self.queue.retain(|frame| std::mem::take(&mut begun) || frame.class != Class::Request);
    }

    /// Keeps, of the frames of which no byte was sent, the replies without a payload. Returns whether they can follow:
    /// the frame that is partly sent, if there is one, has no payload either.
    pub(super) fn keep_short_replies(&mut self) -> bool {
        let whole = self.sent == 0 || self.queue.front().is_none_or(|frame| frame.payload.is_none());
        let mut begun = self.sent > 0;
        self.queue
            .retain(|frame| frame.payload.is_none() && (std::mem::take(&mut begun) || frame.is_reply()));
        whole
    }

    /// Writes at most `budget` bytes, and returns how many.
    ///
    /// A frame whose payload may not be read any more is dropped if no byte of it was sent. If some were, and the
    /// peer will drop the payload, zeros fill it up to its length, because the stream must stay in step.
    ///
    /// When the budget cuts the bytes, it cuts them between two TCP segments: the few bytes left over would travel,
    /// be acknowledged and wake the peer on their own.
    ///
    /// # Errors
    ///
    /// [`LinkError::Revoked`] when a payload was revoked after its first byte was sent and the peer will use it;
    /// otherwise the socket's error.
    pub(super) fn write(
        &mut self,
        fd: BorrowedFd<'_>,
        sink: &dyn Sink,
        budget: usize,
    ) -> Result<usize, LinkError> {
        let mut bytes = 0;
        while bytes < budget && !self.queue.is_empty() {
            self.drop_revoked(sink)?;
            let mut gathered = self.gather(sink, budget - bytes);
            let more_follows = gathered.bytes == budget - bytes;
            if more_follows {
                gathered = self.gather(sink, socket::whole_segments(fd, budget - bytes));
            }
            if gathered.count == 0 {
                break;
            }
            // SAFETY: headers are in the queue, which nothing changes before the call returns. The state confirmed
            // just now that the payloads may be read while the lock is held, and whoever has a `&dyn Sink` holds it,
            // so the ranges stay valid.
            let sent = unsafe { socket::send(fd, &gathered.vectors[..gathered.count]) }?;
            self.advance(sent);
            bytes += sent;
            if sent < gathered.bytes || more_follows {
                break;
            }
        }
        Ok(bytes)
    }

    /// Drops the first frames while their payload may not be read any more.
    fn drop_revoked(&mut self, sink: &dyn Sink) -> Result<(), LinkError> {
        while let Some(front) = self.queue.front() {
            if front.valid(sink) || self.sent > 0 && front.is_already_delivered(sink) {
                break;
            }
            if self.sent > 0 {
                return Err(LinkError::Revoked);
            }
            self.queue.pop_front();
        }
        Ok(())
    }

    /// Collects the next bytes to send, at most `budget`. Every payload in them was found valid, or is filler.
    fn gather(&self, sink: &dyn Sink, budget: usize) -> Gathered {
        let mut gathered = Gathered::new(budget);
        let mut skip = self.sent;
        for frame in self.queue.iter().take(BATCH) {
            let filler = !frame.valid(sink);
            // No byte of this frame was sent yet: `drop_revoked` drops it before the next call.
            if filler && skip == 0 {
                break;
            }
            let header = &frame.header[skip.min(frame.header_len)..frame.header_len];
            let mut whole = gathered.push(header.as_ptr(), header.len());
            skip = skip.saturating_sub(frame.header_len);
            if let (Some(payload), true) = (frame.payload, filler) {
                gathered.fill_up(payload.len as usize - skip);
                break;
            }
            if let Some(payload) = frame.payload {
                let start = std::ptr::with_exposed_provenance::<u8>(payload.addr as usize);
                whole = whole && gathered.push(start.wrapping_add(skip), payload.len as usize - skip);
            }
            if !whole {
                break;
            }
            skip = 0;
        }
        gathered
    }

    /// Counts bytes as sent, and drops the frames that were sent whole.
    fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
        while let Some(front) = self.queue.front().filter(|_| self.sent > 0) {
            self.moved |= front.class == Class::Request;
            if self.sent < front.len() {
                break;
            }
            self.sent -= front.len();
            self.queue.pop_front();
        }
    }
}

/// The ranges to send in one call.
struct Gathered {
    vectors: [libc::iovec; 2 * BATCH],
    count: usize,
    bytes: usize,
    budget: usize,
}

impl Gathered {
    fn new(budget: usize) -> Self {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self { vectors: [none; 2 * BATCH], count: 0, bytes: 0, budget }
    }

    /// Adds a range, as far as the budget goes; returns whether all of it fit.
    fn push(&mut self, base: *const u8, len: usize) -> bool {
        let fits = len.min(self.budget - self.bytes);
        if fits > 0 {
            self.vectors[self.count] = libc::iovec { iov_base: base.cast_mut().cast(), iov_len: fits };
            self.count += 1;
            self.bytes += fits;
        }
        fits == len
    }

    /// Adds `len` bytes of filler, as far as budget and vectors go.
    fn fill_up(&mut self, mut len: usize) {
        while len > 0 && self.count < self.vectors.len() {
            let n = len.min(FILLER.len());
            if !self.push(FILLER.as_ptr(), n) {
                return;
            }
            len -= n;
        }
    }
}
