//! Fuzz target: arbitrary bytes as a packet of the rendezvous. A packet that decodes must be the encoding of its
//! frame.

use super::frame::{DESCRIPTORS_MAX, Frame};

pub(crate) fn packet(data: &[u8]) {
    let Ok(frame) = Frame::decode(data) else { return };
    assert!(frame.descriptors() <= DESCRIPTORS_MAX);
    let said = frame.encode();
    // A refusal is understood in every version, and the version is two bytes after the first four.
    let other = matches!(frame, Frame::Refused(_)) && said[..4] == data[..4] && said[6..] == data[6..];
    assert!(other || said == data);
}

#[cfg(test)]
mod tests;
