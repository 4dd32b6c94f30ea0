//! Round trips of every frame, pieces of frames and another version.

use proptest::prelude::*;

use super::*;
use crate::backend::soft::engine::sequence::MASK_24;
use crate::{Gid, QpNum};

fn frames() -> impl Strategy<Value = Frame> {
    let hello = (any::<[[u8; 16]; 2]>(), [0..=MASK_24, 0..=MASK_24]).prop_map(|(gids, qps)| {
        Frame::Hello(Hello {
            source_gid: Gid(gids[0]),
            source_qp: QpNum(qps[0]),
            destination_gid: Gid(gids[1]),
            destination_qp: QpNum(qps[1]),
        })
    });
    let refusal = prop_oneof![
        any::<u16>().prop_map(Refusal::Version),
        Just(Refusal::User),
        Just(Refusal::Pidfd),
        any::<u32>().prop_map(Refusal::Limit),
    ];
    prop_oneof![
        hello,
        any::<(u64, u64)>().prop_map(|(mailbox, keys)| Frame::Welcome { mailbox, keys }),
        any::<(u64, u64)>().prop_map(|(id, len)| Frame::Memory { id, len }),
        any::<([u64; 3], u32)>().prop_map(|([id, offset, len], version)| Frame::Patch {
            id,
            offset,
            len,
            version
        }),
        any::<u64>().prop_map(|id| Frame::Resume { id }),
        any::<u64>().prop_map(|id| Frame::Forget { id }),
        refusal.prop_map(Frame::Refused),
        Just(Frame::Nudge),
    ]
}

proptest! {
    #[test]
    fn every_frame_comes_back(frame in frames()) {
        prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
    }

    #[test]
    fn what_is_taken_is_the_one_encoding(frame in frames(), at in 0..FRAME_BYTES, bits: u8) {
        let mut bytes = frame.encode();
        bytes[at] ^= bits;
        if let Ok(taken) = Frame::decode(&bytes) {
            // A refusal is understood in every version.
            let (said, other) = (taken.encode(), matches!(taken, Frame::Refused(_)) && (4..6).contains(&at));
            prop_assert!(other || said == bytes);
        }
    }

    #[test]
    fn half_a_frame_and_garbage_are_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Frame::decode(&bytes).is_err());
    }
}

#[test]
fn another_version_is_named() {
    let mut bytes = Frame::Nudge.encode();
    bytes[4] = 9;
    let error = Frame::decode(&bytes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the frame has version 9 of the rendezvous, and this process speaks version 2"
    );
}
