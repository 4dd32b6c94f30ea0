//! Frames in any pieces, arbitrary bytes, and each fault of a header.

use super::*;
use proptest::prelude::*;

/// Feeds `bytes` in pieces of the given sizes, as a socket would; what is wanted is never exceeded.
fn read(reader: &mut FrameReader, mut bytes: &[u8], pieces: &[usize]) -> Result<Vec<Frame>, FrameError> {
    let mut frames = Vec::new();
    let mut sizes = pieces.iter().copied().cycle();
    while !bytes.is_empty() {
        let size = sizes.next().unwrap_or(1).max(1).min(reader.wanted()).min(bytes.len());
        let (piece, rest) = bytes.split_at(size);
        frames.extend(reader.push(piece)?);
        bytes = rest;
    }
    Ok(frames)
}

fn frames() -> impl Strategy<Value = Frame> {
    (any::<u8>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..40))
        .prop_map(|(kind, id, payload)| Frame { kind, id, payload: payload.into() })
}

proptest! {
    #[test]
    fn frames_in_any_pieces_come_out_as_they_went_in(
        sent in prop::collection::vec(frames(), 0..5),
        pieces in prop::collection::vec(1_usize..30, 1..5),
    ) {
        let bytes: Vec<u8> = sent.iter().flat_map(Frame::encode).collect();
        let mut reader = FrameReader::new(40);
        prop_assert_eq!(read(&mut reader, &bytes, &pieces).unwrap(), sent);
        prop_assert!(!reader.is_partial());
    }

    #[test]
    fn garbage_is_an_error_or_waits_and_never_holds_more_than_a_frame(
        head in prop_oneof![Just(b"rcst\x02\0".to_vec()), Just(b"rcst".to_vec()), Just(Vec::new())],
        tail in prop::collection::vec(any::<u8>(), 0..200),
        pieces in prop::collection::vec(1_usize..30, 1..5),
    ) {
        let mut reader = FrameReader::new(40);
        let _ = read(&mut reader, &[head, tail].concat(), &pieces);
        prop_assert!(reader.bytes.len() <= HEADER_BYTES + 40);
    }
}

#[test]
fn each_fault_of_a_header_is_told_apart() {
    let good = Frame { kind: 1, id: 2, payload: [0; 40].into() }.encode();
    let fault = |at: usize, value| {
        let mut bytes = good.clone();
        bytes[at] = value;
        FrameReader::new(40).push(&bytes[..HEADER_BYTES])
    };
    assert_eq!(fault(0, b'G'), Err(FrameError::NotAStore));
    assert_eq!(fault(4, 1), Err(FrameError::OtherVersion { theirs: 1 }));
    assert_eq!(fault(7, 1), Err(FrameError::Malformed { what: "protection" }));
    assert_eq!(fault(12, 41), Err(FrameError::TooLarge { bytes: 41, bytes_max: 40 }));
    assert_eq!(fault(15, 0xff), Err(FrameError::TooLarge { bytes: 0xff00_0028, bytes_max: 40 }));
    assert_eq!(fault(6, 77), Ok(None), "kinds are the message's");
}
