//! The receiving half of a connection: takes bytes, and delivers messages and their payload to the state.
//!
//! This file has no socket. [`Link`](super::link::Link) asks where the next bytes go, receives them, and reports how
//! many came.

#![expect(unsafe_code, reason = "copies payload to where the state said")]

use std::time::Instant;

use super::super::{Payload, QpRef, Right, Sink, Token};
use super::frame::{self, FrameError, HELLO_BYTES, REPLY_BYTES, REQUEST_BYTES};
use crate::backend::soft::engine::decision::takes_receive;
use crate::backend::soft::engine::message::ReplyKind;
use crate::backend::soft::engine::sequence;
use crate::memory::copy_shared;

/// Payloads of at least this length are received straight into their target, one system call each. Smaller ones come
/// many to a call, and are copied out of the staging buffer.
const BULK_BYTES: usize = 8 << 10;
/// Bytes received into the staging buffer between two such payloads: the header of the next one, and acknowledgements
/// and requests without a payload in front of it.
const BETWEEN_BYTES: usize = 8 * REQUEST_BYTES;
/// The longest payload that this end's process answers soon: it reduces so many bytes in some 10 us, and a peer that
/// waits for the acknowledgement must not wait longer.
const ANSWERED_BYTES_MAX: usize = 64 << 10;

/// The kind of the next bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextBytes {
    /// A header, of which `have` bytes were received.
    Header { have: usize },
    /// Payload to be written at `addr`.
    Payload { token: Token, addr: u64, left: usize },
    /// Payload to be dropped; [`Sink::placed`] is called with `placed` at its end.
    Discard { left: usize, placed: Option<Token> },
}

/// The receiver of one connection.
#[derive(Debug)]
pub(super) struct Inflow {
    qp: QpRef,
    next: NextBytes,
    header: [u8; HELLO_BYTES],
    bulk: bool,
    /// The peer has said its hello, so that it may send requests.
    greeted: bool,
    /// The hello came since the last call of [`take_hello`](Self::take_hello).
    hello_came: bool,
    /// The sequence number of the last acknowledgement.
    acknowledged: Option<u32>,
    /// The requests that have asked for an acknowledgement and have none yet.
    asked: Option<Asked>,
}

/// Requests that have asked for an acknowledgement.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// The sequence number of the last one.
    last: u32,
    /// The last one is short, and this end's process notices it, so that an answer may follow soon.
    answerable: bool,
}

/// How soon an acknowledgement must leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckUrgency {
    /// A completion of the peer waits for it.
    AtOnce,
    /// A completion of the peer waits for it. But an answer may follow soon, and the acknowledgement with it.
    WithAnswer,
    /// Nothing waits for it.
    Unasked,
}

impl Inflow {
    /// Makes the receiver of a connection, whose peer has been `greeted` if its hello was read already.
    pub(super) fn new(qp: QpRef, greeted: bool) -> Self {
        Self {
            qp,
            next: NextBytes::Header { have: 0 },
            header: [0; HELLO_BYTES],
            bulk: false,
            greeted,
            hello_came: false,
            acknowledged: None,
            asked: None,
        }
    }

    /// Whether the peer's hello came since the last call.
    pub(super) fn take_hello(&mut self) -> bool {
        std::mem::take(&mut self.hello_came)
    }

    /// Returns the sequence number that the peer acknowledged last.
    pub(super) fn acknowledged(&self) -> Option<u32> {
        self.acknowledged
    }

    /// How soon the acknowledgement of all requests up to `psn` must leave, which is about to be queued.
    ///
    /// Acknowledgements are queued after a whole read, which may have brought requests beyond `psn`. One that has asked
    /// makes all acknowledgements urgent until its own.
    pub(super) fn ack_urgency(&mut self, psn: u32) -> AckUrgency {
        let Some(Asked { last, answerable }) = self.asked else { return AckUrgency::Unasked };
        if sequence::distance(psn, last) <= 0 {
            self.asked = None;
        }
        if answerable { AckUrgency::WithAnswer } else { AckUrgency::AtOnce }
    }

    /// Whether the next bytes are the data of a read.
    pub(super) fn is_read_data(&self) -> bool {
        matches!(self.next, NextBytes::Payload { token: Token { right: Right::Requested { .. }, .. }, .. })
    }

    /// Returns where the next bytes may be received directly, at most `len` of them; valid until the lock is
    /// released. `None` when they must be [`fed`](Self::feed).
    pub(super) fn direct(&self, sink: &dyn Sink, len: usize) -> Option<(u64, usize)> {
        match self.next {
            NextBytes::Payload { token, addr, left } if sink.still_valid(token) => {
                Some((addr, left.min(len)))
            }
            _ => None,
        }
    }

    /// Returns how many bytes, of at most `staging`, to receive beyond those of [`direct`](Self::direct).
    ///
    /// In a stream of large payloads, few bytes of one are asked for before its header is known: they arrive in the
    /// staging buffer and are copied once more.
    pub(super) fn beyond(&self, direct: usize, staging: usize) -> usize {
        match self.next {
            NextBytes::Payload { left, .. } if direct > 0 && left > direct => 0,
            NextBytes::Header { .. } if self.bulk => BETWEEN_BYTES.min(staging),
            _ if self.bulk && direct > 0 => BETWEEN_BYTES.min(staging),
            _ => staging,
        }
    }

    /// Reports that `n` bytes were received where [`direct`](Self::direct) said.
    pub(super) fn filled(&mut self, now: Instant, n: usize, sink: &mut dyn Sink) {
        if let NextBytes::Payload { token, addr, left } = self.next {
            let n = n.min(left);
            self.next = NextBytes::Payload { token, addr: addr + n as u64, left: left - n };
            self.finish(now, sink);
        }
    }

    /// Takes received bytes, and delivers every message that is complete in them.
    pub(super) fn feed(
        &mut self,
        now: Instant,
        mut bytes: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<(), FrameError> {
        while let Some(first) = bytes.first() {
            let took = match self.next {
                NextBytes::Header { have } => {
                    let size = frame::header_bytes(if have == 0 { *first } else { self.header[0] })?;
                    let n = bytes.len().min(size - have);
                    self.header[have..have + n].copy_from_slice(&bytes[..n]);
                    self.next = NextBytes::Header { have: have + n };
                    if have + n == size {
                        self.deliver(now, sink)?;
                    }
                    n
                }
                NextBytes::Payload { token, left, .. } if !sink.still_valid(token) => {
                    // The rest of a revoked payload must still be taken off the stream, or the next header would be
                    // read in the wrong position.
                    self.next = NextBytes::Discard { left, placed: Some(token) };
                    0
                }
                NextBytes::Payload { token, addr, left } => {
                    let n = bytes.len().min(left);
                    let target = std::ptr::with_exposed_provenance_mut::<u8>(addr as usize);
                    // SAFETY: the state confirmed `token`, and with it `addr..addr + left`, under the lock that is
                    // still held, and `n` is at most `left`. `bytes` is this process's own staging buffer, never
                    // registered memory, so the ranges do not overlap.
                    unsafe { copy_shared(bytes.as_ptr(), target, n) };
                    self.next = NextBytes::Payload { token, addr: addr + n as u64, left: left - n };
                    n
                }
                NextBytes::Discard { left, placed } => {
                    let n = bytes.len().min(left);
                    self.next = NextBytes::Discard { left: left - n, placed };
                    n
                }
            };
            bytes = &bytes[took..];
            self.finish(now, sink);
        }
        Ok(())
    }

    /// Goes on to the next header when the payload is complete.
    fn finish(&mut self, now: Instant, sink: &mut dyn Sink) {
        let placed = match self.next {
            NextBytes::Payload { token, left: 0, .. } => Some(token),
            NextBytes::Discard { left: 0, placed } => placed,
            _ => return,
        };
        self.next = NextBytes::Header { have: 0 };
        if let Some(token) = placed {
            sink.placed(now, token);
        }
    }

    /// Delivers a complete header, and learns where its payload goes.
    fn deliver(&mut self, now: Instant, sink: &mut dyn Sink) -> Result<(), FrameError> {
        let (follow, placement) = match frame::header_bytes(self.header[0])? {
            REPLY_BYTES => {
                let reply = frame::decode_reply(head(&self.header))?;
                if reply.kind == ReplyKind::Ack {
                    self.acknowledged = Some(reply.psn);
                }
                (reply.len, sink.reply(now, self.qp, &reply))
            }
            REQUEST_BYTES if self.greeted => {
                let request = frame::decode_request(head(&self.header))?;
                let follow = request.payload_len();
                if request.ack_req {
                    let answerable =
                        follow as usize <= ANSWERED_BYTES_MAX && (follow > 0 || takes_receive(&request));
                    self.asked = Some(Asked { last: request.psn, answerable });
                }
                (follow, sink.request(now, self.qp, &request))
            }
            HELLO_BYTES if !self.greeted => {
                let hello = frame::decode_hello(&self.header)?;
                if sink.accept(&hello) != Some(self.qp) {
                    return Err(FrameError::Hello);
                }
                (self.greeted, self.hello_came) = (true, true);
                (0, None)
            }
            _ => return Err(FrameError::Hello),
        };
        let left = follow as usize;
        // Frames without a payload come between those of a stream.
        if left > 0 {
            self.bulk = left >= BULK_BYTES;
        }
        self.next = match placement {
            Some(Payload { len, .. }) if len != follow => return Err(FrameError::Placement),
            Some(Payload { token, addr, .. }) => NextBytes::Payload { token, addr, left },
            None => NextBytes::Discard { left, placed: None },
        };
        Ok(())
    }
}

/// The first `N` bytes of a header, which is never longer than a hello.
fn head<const N: usize>(header: &[u8; HELLO_BYTES]) -> &[u8; N] {
    const { assert!(N <= HELLO_BYTES) };
    header.first_chunk().unwrap_or(&[0; N])
}

#[cfg(test)]
mod tests;
