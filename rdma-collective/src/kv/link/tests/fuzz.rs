//! Fuzz entry point of the payload by which a peer describes its pool.

use super::payload::Payload;

/// Decodes any bytes as a payload; a payload that decodes must come back from its own encoding.
pub(crate) fn fuzz(data: &[u8]) {
    if let Ok(payload) = Payload::decode(data) {
        assert_eq!(Payload::decode(&payload.encode()).ok(), Some(payload));
    }
}
