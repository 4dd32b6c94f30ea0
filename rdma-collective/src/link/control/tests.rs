//! Round trips of an envelope, and each fault of one.

use super::*;

fn message() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    let len = encode(&mut bytes, 7, Kind(16), |body| body.u64(42)).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn a_message_comes_back() {
    let bytes = message();
    let expected = Control { kind: Kind(16), body: &42_u64.to_le_bytes() };
    assert_eq!(decode(&bytes, 7), Ok(expected));
    assert_eq!(encode(&mut [0; 19], 7, Kind(16), |body| body.u64(42)), Err(NoRoom));
    assert_eq!(encode(&mut [0; 5], 7, Kind::CLOSE, |_| Ok(())), Err(NoRoom));
}

#[test]
fn shorter_longer_other_version_and_other_epoch_are_told_apart() {
    let bytes = message();
    for len in 1..bytes.len() {
        assert_eq!(decode(&bytes[..len], 7), Err(ControlError::Length(len)));
    }
    assert_eq!(decode(&[&bytes[..], &[0]].concat(), 7), Err(ControlError::Length(21)));
    assert_eq!(decode(&bytes, 8), Err(ControlError::Epoch(7)));
    let mut other = bytes;
    other[0] = 1;
    assert_eq!(decode(&other, 7), Err(ControlError::Version(1)));
}

#[test]
fn no_byte_can_be_altered() {
    for at in 0..message().len() {
        let mut bytes = message();
        bytes[at] ^= 0x10;
        assert!(decode(&bytes, 7).is_err(), "byte {at}");
    }
}
