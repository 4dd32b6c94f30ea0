//! Round trips, arbitrary bytes, and each refusal.

use proptest::prelude::*;

use super::*;
use crate::{Gid, QpNum};

fn hello() -> impl Strategy<Value = Hello> {
    (any::<[u8; 16]>(), any::<[u8; 16]>(), 0..=MASK_24, 0..=MASK_24).prop_map(|(from, to, a, b)| Hello {
        source_gid: Gid(from),
        source_qp: QpNum(a),
        destination_gid: Gid(to),
        destination_qp: QpNum(b),
    })
}

fn request() -> impl Strategy<Value = Request> {
    let op = prop_oneof![Just(RequestOp::Send), Just(RequestOp::Write), Just(RequestOp::Read)];
    let numbers = (0..=MASK_24, any::<u64>(), any::<u32>(), 0..=MESSAGE_BYTES_MAX);
    (op, any::<Option<u32>>(), any::<bool>(), numbers).prop_map(
        |(op, imm, ack_req, (psn, remote_addr, rkey, len))| {
            let ack_req = ack_req && op != RequestOp::Read;
            let imm = imm.filter(|_| op != RequestOp::Read);
            let (remote_addr, rkey) = if op == RequestOp::Send { (0, 0) } else { (remote_addr, rkey) };
            Request { psn, op, imm, remote_addr, rkey, len, ack_req }
        },
    )
}

fn reply() -> impl Strategy<Value = Reply> {
    let nak = prop_oneof![
        Just(Nak::Sequence),
        Just(Nak::InvalidRequest),
        Just(Nak::RemoteAccess),
        Just(Nak::RemoteOperational)
    ];
    let kind = prop_oneof![
        Just(ReplyKind::Ack),
        Just(ReplyKind::ReadData),
        nak.prop_map(ReplyKind::Nak),
        (0..32u8).prop_map(|timer| ReplyKind::Rnr { timer })
    ];
    (kind, 0..=MASK_24, 0..=MESSAGE_BYTES_MAX).prop_map(|(kind, psn, len)| {
        let len = if kind == ReplyKind::ReadData { len } else { 0 };
        Reply { psn, kind, len }
    })
}

proptest! {
    #[test]
    fn a_hello_comes_back(it in hello()) {
        prop_assert_eq!(decode_hello(&encode_hello(&it)), Ok(it));
    }

    #[test]
    fn a_request_comes_back(it in request()) {
        prop_assert_eq!(decode_request(&encode_request(&it)), Ok(it));
    }

    #[test]
    fn a_reply_comes_back(it in reply()) {
        prop_assert_eq!(decode_reply(&encode_reply(&it)), Ok(it));
    }

    /// Arbitrary bytes are refused, or are the one encoding of what they decode to.
    #[test]
    fn any_bytes_are_refused_or_canonical(
        mut bytes in any::<[u8; HELLO_BYTES]>(), kind in 0..9u8, detail in 0..6u8, sparse in any::<bool>(),
    ) {
        (bytes[0], bytes[1]) = (kind, detail);
        if sparse {
            // Random bytes seldom have zeros where a frame must.
            bytes[2..4].fill(0);
            bytes[20..24].fill(0);
            bytes[7] = 0;
            bytes[11] &= 0x7f;
        }
        let head = bytes.first_chunk().unwrap();
        if let Ok(it) = decode_request(head) {
            prop_assert_eq!(&encode_request(&it), head);
        }
        bytes[12..16].fill(0);
        let head = bytes.first_chunk().unwrap();
        if let Ok(it) = decode_reply(head) {
            prop_assert_eq!(&encode_reply(&it), head);
        }
        prop_assert!(decode_hello(&bytes).is_err());
        bytes[..10].copy_from_slice(&[&MAGIC[..], &VERSION.to_le_bytes()].concat());
        if let Ok(it) = decode_hello(&bytes) {
            prop_assert_eq!(encode_hello(&it), bytes);
        }
    }
}

#[test]
fn lengths_beyond_the_longest_message_are_refused() {
    let longest = Request {
        psn: 1,
        op: RequestOp::Write,
        imm: None,
        remote_addr: 0,
        rkey: 0,
        len: MESSAGE_BYTES_MAX,
        ack_req: false,
    };
    assert!(decode_request(&encode_request(&longest)).is_ok());
    let mut bytes = encode_request(&longest);
    bytes[8] = 1;
    assert_eq!(decode_request(&bytes), Err(FrameError::TooLong(MESSAGE_BYTES_MAX + 1)));
    let mut bytes = encode_reply(&Reply { psn: 1, kind: ReplyKind::ReadData, len: 0 });
    bytes[8..12].fill(0xff);
    assert_eq!(decode_reply(&bytes), Err(FrameError::TooLong(u32::MAX)));
}

#[test]
fn another_version_and_another_protocol_are_told_apart() {
    let hello = Hello {
        source_gid: Gid([1; 16]),
        source_qp: QpNum(1),
        destination_gid: Gid([2; 16]),
        destination_qp: QpNum(2),
    };
    let mut bytes = encode_hello(&hello);
    bytes[8] = 1;
    assert_eq!(decode_hello(&bytes), Err(FrameError::Version(1)));
    bytes[0] = b'G';
    assert_eq!(decode_hello(&bytes), Err(FrameError::Magic));
    assert_eq!(
        FrameError::Version(1).to_string(),
        "the peer speaks version 1 of the protocol, and this process version 3"
    );
}

#[test]
fn the_first_byte_tells_how_long_a_header_is() {
    for kind in 0..=u8::MAX {
        let expected = match kind {
            1..=3 => Ok(REQUEST_BYTES),
            4..=7 => Ok(REPLY_BYTES),
            b'r' => Ok(HELLO_BYTES),
            other => Err(FrameError::Kind(other)),
        };
        assert_eq!(header_bytes(kind), expected);
    }
}

#[test]
fn what_does_not_apply_must_be_zero() {
    let send =
        Request { psn: 0, op: RequestOp::Send, imm: None, remote_addr: 0, rkey: 0, len: 0, ack_req: false };
    for (at, value) in [(1, 2), (2, 2), (3, 1), (7, 1), (12, 1), (16, 1), (20, 1), (24, 1)] {
        let mut bytes = encode_request(&send);
        bytes[at] = value;
        assert_eq!(decode_request(&bytes), Err(FrameError::Field), "byte {at}");
    }
    let ack = Reply { psn: 0, kind: ReplyKind::Ack, len: 0 };
    for at in [1, 2, 3, 7, 8, 12] {
        let mut bytes = encode_reply(&ack);
        bytes[at] = 1;
        assert_eq!(decode_reply(&bytes), Err(FrameError::Field), "byte {at}");
    }
    let mut bytes = encode_reply(&ack);
    bytes[0] = 9;
    assert_eq!(decode_reply(&bytes), Err(FrameError::Kind(9)));
    let mut bytes = encode_request(&send);
    bytes[0] = 0;
    assert_eq!(decode_request(&bytes), Err(FrameError::Kind(0)));
}
