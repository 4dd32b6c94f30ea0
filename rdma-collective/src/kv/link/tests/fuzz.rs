//! Fuzz entry point of the payload by which a peer describes its pool.

use super::payload::Payload;

/// Decodes any bytes as a payload; a payload that decodes must encode to the same bytes.
pub(crate) fn fuzz(data: &[u8]) {
    if let Ok(payload) = Payload::decode(data) {
        assert_eq!(payload.encode(), data);
    }
}
