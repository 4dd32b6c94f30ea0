//! Bytes in any pieces are the same messages, and any bytes at all do no harm.

use proptest::prelude::*;
use slotmap::SlotMap;

use super::super::frame::encode_request;
use super::*;
use crate::backend::soft::engine::message::{Reply, Request};
use crate::backend::soft::wire::{Hello, Right};

/// Places writes into its memory by their address, and takes note.
struct Memory {
    bytes: Vec<u8>,
    /// Placements that end before their payload does.
    revoked: Vec<u32>,
    heard: Vec<(u32, bool)>,
}

impl Sink for Memory {
    fn accept(&mut self, _: &Hello) -> Option<QpRef> {
        None
    }

    fn request(&mut self, _: Instant, qp: QpRef, request: &Request) -> Placement {
        self.heard.push((request.psn, false));
        let (at, len) = (request.remote_addr as usize, request.len);
        let range = at..at.saturating_add(len as usize);
        match self.bytes.get_mut(range) {
            Some(target) if request.op == RequestOp::Write => Placement::At {
                token: Token { qp, right: Right::Placing { serial: request.psn.into() } },
                addr: target.as_mut_ptr().expose_provenance() as u64,
                len,
            },
            _ => Placement::Discard { len },
        }
    }

    fn reply(&mut self, _: Instant, _: QpRef, reply: &Reply) -> Placement {
        Placement::Discard { len: reply.len }
    }

    fn placed(&mut self, _: Instant, token: Token) {
        let last = self.heard.last_mut().unwrap();
        assert_eq!(token.right, Right::Placing { serial: last.0.into() });
        assert!(!std::mem::replace(&mut last.1, true), "placed twice");
    }

    fn still_valid(&self, token: Token) -> bool {
        !self.revoked.iter().any(|psn| token.right == Right::Placing { serial: (*psn).into() })
    }

    fn moving(&mut self, _: Instant, _: QpRef) {}
}

fn memory(len: usize, revoked: Vec<u32>) -> Memory {
    Memory { bytes: vec![0; len], revoked, heard: Vec::new() }
}

/// Hands `stream` over as a socket would that has `pieces` bytes at a time.
fn receive(stream: &[u8], pieces: &[usize], sink: &mut Memory) -> Result<(), FrameError> {
    let now = Instant::now();
    let qp = SlotMap::<QpRef, ()>::with_key().insert(());
    let mut inflow = Inflow::new(Role::Responder, qp);
    let mut pieces = pieces.iter().copied().cycle();
    let mut at = 0;
    while at < stream.len() {
        let there = pieces.next().unwrap().min(stream.len() - at);
        let (addr, direct) = inflow.direct(sink, usize::MAX).unwrap_or((0, 0));
        let beyond = inflow.beyond(direct, 256);
        assert!(direct + beyond > 0, "nothing is asked for");
        let filled = there.min(direct);
        let target = std::ptr::with_exposed_provenance_mut::<u8>(addr as usize);
        // SAFETY: the range is one that `request` gave out of its own vector.
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

proptest! {
    #[test]
    fn pieces_do_not_matter(
        sizes in prop::collection::vec(prop_oneof![0..50usize, 8000..8400usize, 20_000..30_000usize], 1..12),
        pieces in prop::collection::vec(prop_oneof![1..40usize, 5000..40_000usize], 1..6),
        revoked in prop::collection::vec(0..12u32, 0..3),
    ) {
        let len = sizes.iter().sum();
        let (mut stream, mut expected, mut at) = (Vec::new(), vec![0; len], 0);
        for (psn, &size) in sizes.iter().enumerate() {
            let psn = psn as u32;
            let payload: Vec<u8> = (0..size).map(|i| (i * 31 + at) as u8 | 1).collect();
            let request =
                Request { psn, op: RequestOp::Write, imm: None, remote_addr: at as u64, rkey: 0, len: size as u32 };
            stream.extend(encode_request(&request));
            stream.extend(&payload);
            if !revoked.contains(&psn) {
                expected[at..at + size].copy_from_slice(&payload);
            }
            at += size;
        }
        let mut sink = memory(len, revoked);
        prop_assert_eq!(receive(&stream, &pieces, &mut sink), Ok(()));
        prop_assert!(sink.bytes == expected);
        let all: Vec<_> = (0..sizes.len() as u32).map(|psn| (psn, true)).collect();
        prop_assert_eq!(sink.heard, all);
    }

    #[test]
    fn any_bytes_are_messages_or_the_end(
        mut stream in prop::collection::vec(any::<u8>(), 0..400),
        pieces in prop::collection::vec(1..100usize, 1..4),
        begins_well in any::<bool>(),
    ) {
        if begins_well {
            let request = Request { psn: 1, op: RequestOp::Write, imm: None, remote_addr: 3, rkey: 0, len: 20 };
            stream.splice(0..0, encode_request(&request));
        }
        let mut sink = memory(100, Vec::new());
        let _ = receive(&stream, &pieces, &mut sink);
        prop_assert!(!begins_well || sink.heard.first().is_some_and(|first| first.0 == 1));
        prop_assert!(sink.bytes[..3] == [0; 3]);
    }
}
