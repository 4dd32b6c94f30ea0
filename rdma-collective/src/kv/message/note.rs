//! The messages that carry notes.

use crate::link::codec::{Ended, NoRoom, Reader, Writer};
use crate::link::control::Kind;

/// A piece of the note that goes with a grant, from decode, or with its push, from prefill.
pub(in crate::kv) const NOTE: Kind = Kind(48);
/// A piece of the note that goes with an offer, from prefill, or with its release, from decode.
pub(in crate::kv) const LEASE_NOTE: Kind = Kind(49);

/// A [`NOTE`] or a [`LEASE_NOTE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kv) struct NotePiece<'a> {
    /// The grant, or the lease.
    pub(in crate::kv) id: u64,
    /// Bytes of the whole note.
    pub(in crate::kv) total: u32,
    /// Index of the first byte of this piece.
    pub(in crate::kv) first: u32,
    pub(in crate::kv) bytes: &'a [u8],
}

impl<'a> NotePiece<'a> {
    /// Bytes in front of those of the note.
    pub(in crate::kv) const HEAD_BYTES: usize = 16;

    pub(in crate::kv) fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u64(self.id)?;
        writer.u32(self.total)?;
        writer.u32(self.first)?;
        writer.put(self.bytes)
    }

    pub(in crate::kv) fn read(body: &'a [u8]) -> Result<Self, Ended> {
        let mut reader = Reader::new(body);
        let (id, total, first) = (reader.u64()?, reader.u32()?, reader.u32()?);
        Ok(Self { id, total, first, bytes: reader.rest() })
    }
}
