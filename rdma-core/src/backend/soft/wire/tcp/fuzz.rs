//! Fuzz target: arbitrary bytes as frames. Bytes that decode must be the encoding of their frame, and payload must be
//! placed where the state said.

#![expect(unsafe_code, reason = "puts bytes where a socket would")]

use std::time::Instant;

use slotmap::SlotMap;

use super::super::{Hello, Payload, QpRef, Right, Sink, Token};
use super::frame::*;
use super::inflow::Inflow;
use crate::backend::soft::engine::message::{MESSAGE_BYTES_MAX, Reply, Request, RequestOp};

pub(crate) fn message(data: &[u8]) {
    if let Some((bytes, _)) = data.split_first_chunk()
        && let Ok(hello) = decode_hello(bytes)
    {
        assert_eq!(encode_hello(&hello), *bytes);
        assert!(check_hello_begin(bytes).is_ok());
    }
    if let Some((bytes, _)) = data.split_first_chunk()
        && let Ok(request) = decode_request(bytes)
    {
        assert_eq!(encode_request(&request), *bytes);
        assert!(request.len <= MESSAGE_BYTES_MAX);
    }
    if let Some((bytes, _)) = data.split_first_chunk()
        && let Ok(reply) = decode_reply(bytes)
    {
        assert_eq!(encode_reply(&reply), *bytes);
        assert!(reply.len <= MESSAGE_BYTES_MAX);
    }
    let _ = check_hello_begin(data);
    if let Some((pieces, stream)) = data.split_first_chunk::<4>() {
        let pieces = pieces.map(|piece| usize::from(piece) + 1);
        // The sanitizer checks the bounds of the vector.
        let _ = receive(stream, &pieces, &mut Memory::new(256, vec![3]));
    }
}

/// A state that places writes into its own memory by their address, and records them.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) bytes: Vec<u8>,
    /// Sequence numbers of placements that may not be used.
    revoked: Vec<u32>,
    /// Sequence numbers of the requests, and whether their payload was placed.
    pub(super) heard: Vec<(u32, bool)>,
}

impl Memory {
    pub(super) fn new(len: usize, revoked: Vec<u32>) -> Self {
        Self { bytes: vec![0; len], revoked, heard: Vec::new() }
    }
}

impl Sink for Memory {
    fn accept(&mut self, _: &Hello) -> Option<QpRef> {
        None
    }

    fn request(&mut self, _: Instant, qp: QpRef, request: &Request) -> Option<Payload> {
        self.heard.push((request.psn, false));
        let (at, len) = (request.remote_addr as usize, request.len);
        let range = at..at.saturating_add(len as usize);
        let target = self.bytes.get_mut(range).filter(|_| request.op == RequestOp::Write)?;
        let token = Token { qp, right: Right::Placing { serial: request.psn.into() } };
        Some(Payload { token, addr: target.as_mut_ptr().expose_provenance() as u64, len })
    }

    fn reply(&mut self, _: Instant, _: QpRef, _: &Reply) -> Option<Payload> {
        None
    }

    fn placed(&mut self, _: Instant, token: Token) {
        let last = self.heard.last_mut().expect("a request before its payload");
        assert_eq!(token.right, Right::Placing { serial: last.0.into() });
        assert!(!std::mem::replace(&mut last.1, true), "placed twice");
    }

    fn still_valid(&self, token: Token) -> bool {
        !self.revoked.iter().any(|psn| token.right == Right::Placing { serial: (*psn).into() })
    }

    fn carried_out(&self, _: Token) -> bool {
        false
    }

    fn moving(&mut self, _: Instant, _: QpRef) {}
}

/// Feeds `stream` to a receiver as a socket would that has `pieces` bytes at a time.
pub(super) fn receive(stream: &[u8], pieces: &[usize], sink: &mut Memory) -> Result<(), FrameError> {
    let now = Instant::now();
    let qp = SlotMap::<QpRef, ()>::with_key().insert(());
    let mut inflow = Inflow::new(qp, true);
    let mut pieces = pieces.iter().copied().cycle();
    let mut at = 0;
    while at < stream.len() {
        let there = pieces.next().unwrap_or(1).min(stream.len() - at);
        let (addr, direct) = inflow.direct(sink, usize::MAX).unwrap_or((0, 0));
        let beyond = inflow.beyond(direct, 256);
        assert!(direct + beyond > 0, "nothing is asked for");
        let filled = there.min(direct);
        let target = std::ptr::with_exposed_provenance_mut::<u8>(addr as usize);
        // SAFETY: `request` gave out this range of its own vector, which outlives the call, and `filled` is at most
        // its length, so the write is in bounds.
        unsafe { std::ptr::copy_nonoverlapping(stream[at..].as_ptr(), target, filled) };
        if filled > 0 {
            inflow.filled(now, filled, sink);
        }
        let staged = (there - filled).min(beyond);
        inflow.feed(now, &stream[at + filled..][..staged], sink)?;
        at += filled + staged;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_break_a_frame(data in prop::collection::vec(any::<u8>(), 0..80)) {
            super::message(&data);
        }
    }
}
