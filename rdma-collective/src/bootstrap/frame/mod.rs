//! Frames: a header with version, kind, identifier and length, and a payload; and the reader that assembles them.
//!
//! The meaning of kinds and payloads is in `message`.

use std::sync::Arc;

use crate::bootstrap::FrameError;

/// The version of frames and messages. The first 16 bytes of a frame are the same in every version.
pub(crate) const VERSION: u16 = 2;
/// The bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 16;
/// The first bytes of every frame, which tell a store's connection from any other.
const MAGIC: [u8; 4] = *b"rcst";

/// The protection of the payload: none. Other values are kept for encrypted payloads.
const CLEAR: u8 = 0;

/// A frame of either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    /// The identifier of the request, chosen by the client; the reply repeats it.
    pub(crate) id: u32,
    /// The payload. Shared, because one gathering answers many clients with the same bytes.
    pub(crate) payload: Arc<[u8]>,
}

impl Frame {
    /// The bytes on the wire in front of the payload. The length fits, because every maker of frames bounds its
    /// payload.
    pub(crate) fn header(&self) -> [u8; HEADER_BYTES] {
        let [v0, v1] = VERSION.to_le_bytes();
        let [i0, i1, i2, i3] = self.id.to_le_bytes();
        let [l0, l1, l2, l3] = (self.payload.len() as u32).to_le_bytes();
        let [m0, m1, m2, m3] = MAGIC;
        [m0, m1, m2, m3, v0, v1, self.kind, CLEAR, i0, i1, i2, i3, l0, l1, l2, l3]
    }

    /// The bytes of the whole frame on the wire.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.header(), &self.payload[..]].concat()
    }
}

/// A reader that assembles frames from arriving pieces. It never holds more than one frame.
#[derive(Debug)]
pub(crate) struct FrameReader {
    payload_bytes_max: usize,
    bytes: Vec<u8>,
    /// Kind, identifier and payload length, once the header is there.
    header: Option<(u8, u32, usize)>,
}

impl FrameReader {
    pub(crate) fn new(payload_bytes_max: usize) -> Self {
        Self { payload_bytes_max, bytes: Vec::new(), header: None }
    }

    /// Sets the longest payload, from the next frame on.
    pub(crate) fn allow(&mut self, payload_bytes_max: usize) {
        self.payload_bytes_max = payload_bytes_max;
    }

    /// The number of bytes that are missing for the header, or for the whole frame; never 0. A caller that reads no
    /// more than this leaves the next frame in the socket.
    pub(crate) fn wanted(&self) -> usize {
        self.header.map_or(HEADER_BYTES, |(_, _, len)| HEADER_BYTES + len) - self.bytes.len()
    }

    /// Whether part of a frame has been read.
    pub(crate) fn is_partial(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Takes bytes, at most [`FrameReader::wanted`], and returns the frame if they complete it.
    ///
    /// The header is checked before any payload is read, so that a stranger cannot announce a long frame. After an
    /// error the connection is of no more use.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
        debug_assert!(bytes.len() <= self.wanted());
        self.bytes.extend_from_slice(bytes);
        if self.header.is_none() {
            let Some(header) = self.bytes.first_chunk() else { return Ok(None) };
            self.header = Some(self.check(header)?);
        }
        match self.header {
            Some((kind, id, len)) if self.bytes.len() >= HEADER_BYTES + len => {
                let payload = self.bytes.get(HEADER_BYTES..).unwrap_or_default().into();
                self.bytes.clear();
                self.header = None;
                Ok(Some(Frame { kind, id, payload }))
            }
            _ => Ok(None),
        }
    }

    /// Checks a header, and returns kind, identifier and payload length.
    fn check(&self, header: &[u8; HEADER_BYTES]) -> Result<(u8, u32, usize), FrameError> {
        let [m0, m1, m2, m3, v0, v1, kind, protection, i0, i1, i2, i3, l0, l1, l2, l3] = *header;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(FrameError::NotAStore);
        }
        let version = u16::from_le_bytes([v0, v1]);
        if version != VERSION {
            return Err(FrameError::OtherVersion { theirs: version });
        }
        if protection != CLEAR {
            return Err(FrameError::Malformed { what: "protection" });
        }
        let bytes = u32::from_le_bytes([l0, l1, l2, l3]);
        if bytes as usize > self.payload_bytes_max {
            return Err(FrameError::TooLarge { bytes, bytes_max: self.payload_bytes_max as u32 });
        }
        Ok((kind, u32::from_le_bytes([i0, i1, i2, i3]), bytes as usize))
    }
}

#[cfg(test)]
mod tests;
