//! Members of the communicators that one is split into, from what all ranks asked for: pure data.

use crate::link::codec::{Ended, Reader};

/// Bytes of an encoded [`SplitRequest`].
pub(super) const REQUEST_BYTES: usize = 9;

/// The color and the key that a rank passes to `split`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SplitRequest {
    pub(super) color: Option<u32>,
    pub(super) key: i32,
}

impl SplitRequest {
    pub(super) fn encode(self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        let (has_color, rest) = bytes.split_at_mut(1);
        has_color[0] = self.color.is_some().into();
        rest[..4].copy_from_slice(&self.color.unwrap_or(0).to_le_bytes());
        rest[4..].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Ended> {
        let mut reader = Reader::new(bytes);
        let (has_color, color, key) = (reader.u8()? != 0, reader.u32()?, reader.u32()?);
        Ok(Self { color: has_color.then_some(color), key: key.cast_signed() })
    }
}

/// The ranks of `color`, in the order of their keys; ranks with the same key in the order of their numbers.
pub(super) fn members_of(requests: &[u8], color: u32) -> Result<Vec<u32>, Ended> {
    let mut members = Vec::new();
    for (rank, request) in (0_u32..).zip(requests.chunks(REQUEST_BYTES)) {
        let request = SplitRequest::decode(request)?;
        if request.color == Some(color) {
            members.push((request.key, rank));
        }
    }
    members.sort_unstable();
    Ok(members.into_iter().map(|(_, rank)| rank).collect())
}

#[cfg(test)]
mod tests;
