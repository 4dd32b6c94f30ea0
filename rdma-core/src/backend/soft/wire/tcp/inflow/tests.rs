//! A stream in any pieces delivers the same messages, and arbitrary bytes do no harm.

use proptest::prelude::*;

use super::super::frame::encode_request;
use super::super::fuzz::{Memory, receive};
use super::{BETWEEN_BYTES, Inflow, NextBytes, QpRef};
use crate::backend::soft::engine::message::{Request, RequestOp};

#[test]
fn little_is_read_between_large_payloads_and_much_of_one_that_is_dropped() {
    let mut inflow = Inflow::new(QpRef::default(), true);
    assert_eq!(inflow.beyond(0, 16 << 10), 16 << 10);
    inflow.bulk = true;
    assert_eq!(inflow.beyond(0, 16 << 10), BETWEEN_BYTES);
    inflow.next = NextBytes::Discard { left: 1 << 20, placed: None };
    assert_eq!(inflow.beyond(0, 16 << 10), 16 << 10);
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
                Request { psn, op: RequestOp::Write, imm: None, remote_addr: at as u64, rkey: 0, len: size as u32, ack_req: false };
            stream.extend(encode_request(&request));
            stream.extend(&payload);
            if !revoked.contains(&psn) {
                expected[at..at + size].copy_from_slice(&payload);
            }
            at += size;
        }
        let mut sink = Memory::new(len, revoked);
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
            let request = Request { psn: 1, op: RequestOp::Write, imm: None, remote_addr: 3, rkey: 0, len: 20, ack_req: false };
            stream.splice(0..0, encode_request(&request));
        }
        let mut sink = Memory::new(100, Vec::new());
        let _ = receive(&stream, &pieces, &mut sink);
        prop_assert!(!begins_well || sink.heard.first().is_some_and(|first| first.0 == 1));
        prop_assert!(sink.bytes[..3] == [0; 3]);
    }
}
