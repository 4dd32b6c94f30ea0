//! The receiving half of a connection: takes bytes, and delivers messages and their payload to the state.
//!
//! This file has no socket. [`Link`](super::link::Link) asks where the next bytes go, receives them, and reports how
//! many came.

#![expect(unsafe_code, reason = "copies payload to where the state said")]

use std::time::Instant;

use super::super::{Payload, QpRef, Sink, Token};
use super::frame::{self, FrameError, REPLY_BYTES, REQUEST_BYTES};
use crate::memory::copy_shared;

/// Payloads of at least this length are received straight into their target, one system call each. Smaller ones come
/// many to a call, and are copied out of the staging buffer.
const BULK_BYTES: usize = 8 << 10;

/// The end of a requester's connection that this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Sends requests and receives replies.
    Requester,
    /// Receives requests and sends replies.
    Responder,
}

impl Role {
    /// Bytes of each header that this end receives.
    fn header_bytes(self) -> usize {
        match self {
            Self::Requester => REPLY_BYTES,
            Self::Responder => REQUEST_BYTES,
        }
    }
}

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
    role: Role,
    qp: QpRef,
    next: NextBytes,
    header: [u8; REQUEST_BYTES],
    bulk: bool,
}

impl Inflow {
    pub(super) fn new(role: Role, qp: QpRef) -> Self {
        let next = NextBytes::Header { have: 0 };
        Self { role, qp, next, header: [0; REQUEST_BYTES], bulk: false }
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
    /// In a stream of large payloads, no byte of one is asked for before its header is known: otherwise it would
    /// arrive in the staging buffer and be copied once more.
    pub(super) fn beyond(&self, direct: usize, staging: usize) -> usize {
        let header = self.role.header_bytes();
        match self.next {
            NextBytes::Payload { left, .. } if direct > 0 && left > direct => 0,
            NextBytes::Header { have } if self.bulk => header.saturating_sub(have).min(staging),
            _ if self.bulk && direct > 0 => header.min(staging),
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
        while !bytes.is_empty() {
            let took = match self.next {
                NextBytes::Header { have } => {
                    let size = self.role.header_bytes();
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
        // The buffer has room for the longer header; a reply is its first 16 bytes.
        let [reply @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = &self.header;
        let (follow, placement) = match self.role {
            Role::Responder => {
                let request = frame::decode_request(&self.header)?;
                (request.payload_len(), sink.request(now, self.qp, &request))
            }
            Role::Requester => {
                let reply = frame::decode_reply(reply)?;
                (reply.len, sink.reply(now, self.qp, &reply))
            }
        };
        let left = follow as usize;
        self.bulk = left >= BULK_BYTES;
        self.next = match placement {
            Some(Payload { len, .. }) if len != follow => return Err(FrameError::Placement),
            Some(Payload { token, addr, .. }) => NextBytes::Payload { token, addr, left },
            None => NextBytes::Discard { left, placed: None },
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests;
