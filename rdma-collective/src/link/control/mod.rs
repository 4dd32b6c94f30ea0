//! The envelope of control messages, which are small SENDs on the lane that they concern.
//!
//! This file owns the 12 bytes in front (version, kind, length, epoch, checksum) and the kinds that every lane has,
//! READY and CLOSE. Kinds from 16 belong to collectives, kinds from 32 to KV transfers, and so do their bodies.
//!
//! Each message has a checksum of its own, because verdicts on KV blocks rest on these messages: a byte that was
//! altered on the way must not be believed.

use super::codec::{NoRoom, Reader, Writer};

/// The version in every control message; a peer with another one is refused.
const VERSION: u8 = 2;
/// The longest message: the envelope counts the bytes behind it with 16 bits.
pub(crate) const MESSAGE_BYTES_MAX: u32 = ENVELOPE_BYTES as u32 + u16::MAX as u32;
/// Bytes of the envelope.
pub(crate) const ENVELOPE_BYTES: usize = HEAD_BYTES + 4;
/// Bytes of the envelope in front of the checksum, which are covered by it.
const HEAD_BYTES: usize = 8;

/// The kind of a control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(pub(crate) u8);

impl Kind {
    /// CLOSE: the sender posts nothing on this lane any more. The body is empty.
    pub(crate) const CLOSE: Self = Self(1);
    /// READY: the sender has connected this lane and can receive. The body is empty. It is the first message in each
    /// direction, unless the two ends learn by other means that both are connected.
    pub(crate) const READY: Self = Self(2);
}

/// A control message that arrived and passed its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Control<'a> {
    pub(crate) kind: Kind,
    pub(crate) body: &'a [u8],
}

/// The reason why bytes are not a control message of the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ControlError {
    #[error("a control message of {0} bytes, where its envelope says otherwise")]
    Length(usize),
    #[error("a control message of version {0}")]
    Version(u8),
    #[error("a control message of epoch {0}")]
    Epoch(u32),
    #[error("a control message that was altered")]
    Altered,
}

/// Writes a control message into `bytes` and returns its length; `body` writes the body.
pub(crate) fn encode(
    bytes: &mut [u8],
    epoch: u32,
    kind: Kind,
    body: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
) -> Result<usize, NoRoom> {
    let (envelope, rest) = bytes.split_at_mut_checked(ENVELOPE_BYTES).ok_or(NoRoom)?;
    let mut writer = Writer::new(rest);
    body(&mut writer)?;
    let len = writer.len();
    let mut writer = Writer::new(envelope);
    writer.u8(VERSION)?;
    writer.u8(kind.0)?;
    writer.u16(u16::try_from(len).map_err(|_| NoRoom)?)?;
    writer.u32(epoch)?;
    let (head, checksum) = envelope.split_at_mut(HEAD_BYTES);
    checksum.copy_from_slice(&sum(head, &rest[..len]).to_le_bytes());
    Ok(ENVELOPE_BYTES + len)
}

/// The checksum of a message: CRC-32C of the envelope's head and the body.
fn sum(head: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), body)
}

/// Reads a control message of the lane's `epoch`, which must fill `bytes` exactly.
///
/// The checksum is checked before the epoch: a wrong epoch in intact bytes is a stale peer, not a damaged message.
pub(crate) fn decode(bytes: &[u8], epoch: u32) -> Result<Control<'_>, ControlError> {
    let short = |_| ControlError::Length(bytes.len());
    let mut reader = Reader::new(bytes);
    let version = reader.u8().map_err(short)?;
    if version != VERSION {
        return Err(ControlError::Version(version));
    }
    let kind = Kind(reader.u8().map_err(short)?);
    let len = reader.u16().map_err(short)?;
    let theirs = reader.u32().map_err(short)?;
    let checksum = reader.u32().map_err(short)?;
    let body = reader.rest();
    if body.len() != usize::from(len) {
        return Err(ControlError::Length(bytes.len()));
    }
    if bytes.get(..HEAD_BYTES).is_none_or(|head| sum(head, body) != checksum) {
        return Err(ControlError::Altered);
    }
    if theirs != epoch {
        return Err(ControlError::Epoch(theirs));
    }
    Ok(Control { kind, body })
}

#[cfg(test)]
mod tests;
