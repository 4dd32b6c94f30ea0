//! Messages between the two ends of a KV link: the bodies of control messages. `docs/wire.md` has the tables.
//!
//! Lists of blocks and of checksums go in pieces; each piece has the length of the whole list and its own position in
//! it.

#[cfg(any(fuzzing, test))]
#[path = "tests/fuzz.rs"]
mod fuzz;
mod pull;
mod revoke;

use crate::link::codec::{Ended, NoRoom, Reader, Writer};
use crate::link::control::Kind;

#[cfg(any(fuzzing, test))]
pub(crate) use fuzz::fuzz;
pub(super) use pull::{LEASE_CHECKSUMS, OFFER, Offer, RECALL, RELEASE, Recall, Release, TAKE, Take};
pub(super) use revoke::{QUIESCED, Quiesced, REVOKE, Reason, Revoke};

/// Destination blocks for a request: from decode to prefill.
pub(super) const GRANT: Kind = Kind(32);
/// The source blocks, and how many writes will come: from prefill to decode.
pub(super) const BEGIN: Kind = Kind(33);
/// Checksums of blocks: from prefill to decode.
pub(super) const CHECKSUMS: Kind = Kind(34);
/// All has arrived: from decode to prefill.
pub(super) const DONE: Kind = Kind(35);
/// Nothing will be written: from prefill to decode.
pub(super) const REFUSE: Kind = Kind(36);

/// Most bytes in front of a list, in every message that has one.
pub(super) const LIST_AT_MOST: usize = 40;

/// A piece of a list of 32-bit numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    /// Length of the whole list, in numbers.
    pub(super) total: u32,
    /// Index of the first number of this piece.
    pub(super) first: u32,
    numbers: &'a [[u8; 4]],
}

impl<'a> Piece<'a> {
    pub(super) fn numbers(self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.numbers.iter().map(|number| u32::from_le_bytes(*number))
    }

    fn read(mut reader: Reader<'a>) -> Result<Self, Ended> {
        let (total, first) = (reader.u32()?, reader.u32()?);
        let (numbers, rest) = reader.rest().as_chunks();
        let end = u64::from(first) + numbers.len() as u64;
        if rest.is_empty() && end <= u64::from(total) {
            Ok(Self { total, first, numbers })
        } else {
            Err(Ended)
        }
    }
}

/// Writes a piece of `list`: at most `room` numbers, from index `first` on.
fn write_piece(writer: &mut Writer<'_>, list: &[u32], first: usize, room: usize) -> Result<(), NoRoom> {
    writer.u32(list.len() as u32)?;
    writer.u32(first as u32)?;
    list.iter().skip(first).take(room).try_for_each(|number| writer.u32(*number))
}

/// The fixed part of a [`GRANT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) grant: u64,
    pub(super) request: u64,
    /// Time to live in milliseconds, counted from its arrival: after that it may not be begun. A duration, because
    /// the two hosts' clocks differ.
    pub(super) time_to_live_ms: u32,
    /// Slot that the immediates of its writes carry.
    pub(super) transfer: u8,
    /// Whether prefill has to send checksums.
    pub(super) checksums: bool,
    /// Whether the list goes on behind the blocks with the bit set of wanted blocks; otherwise all are wanted.
    pub(super) partial: bool,
    /// Number of blocks in the list.
    pub(super) blocks: u32,
}

impl Grant {
    pub(super) fn write(
        &self,
        writer: &mut Writer<'_>,
        list: &[u32],
        first: usize,
        room: usize,
    ) -> Result<(), NoRoom> {
        writer.u64(self.grant)?;
        writer.u64(self.request)?;
        writer.u32(self.time_to_live_ms)?;
        writer.put(&[self.transfer, self.checksums.into(), self.partial.into(), 0])?;
        writer.u32(self.blocks)?;
        write_piece(writer, list, first, room)
    }

    pub(super) fn read(body: &[u8]) -> Result<(Self, Piece<'_>), Ended> {
        let mut reader = Reader::new(body);
        let (grant, request, time_to_live_ms) = (reader.u64()?, reader.u64()?, reader.u32()?);
        let (transfer, checksums, partial) = match reader.array()? {
            [transfer, checksums @ (0 | 1), partial @ (0 | 1), 0] => (transfer, checksums == 1, partial == 1),
            _ => return Err(Ended),
        };
        let blocks = reader.u32()?;
        let grant = Self { grant, request, time_to_live_ms, transfer, checksums, partial, blocks };
        Ok((grant, Piece::read(reader)?))
    }
}

/// The fixed part of a [`BEGIN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begin {
    pub(super) grant: u64,
    pub(super) lease: u64,
    pub(super) writes: u32,
    pub(super) write_bytes_max: u32,
    /// Whether no write has bytes of two layers, and writes come layer by layer.
    pub(super) by_layer: bool,
}

impl Begin {
    pub(super) fn write(
        &self,
        writer: &mut Writer<'_>,
        blocks: &[u32],
        first: usize,
        room: usize,
    ) -> Result<(), NoRoom> {
        writer.u64(self.grant)?;
        writer.u64(self.lease)?;
        writer.u32(self.writes)?;
        writer.u32(self.write_bytes_max)?;
        writer.put(&[self.by_layer.into(), 0, 0, 0])?;
        write_piece(writer, blocks, first, room)
    }

    pub(super) fn read(body: &[u8]) -> Result<(Self, Piece<'_>), Ended> {
        let mut reader = Reader::new(body);
        let (grant, lease) = (reader.u64()?, reader.u64()?);
        let (writes, write_bytes_max) = (reader.u32()?, reader.u32()?);
        let by_layer = match reader.array()? {
            [flag @ (0 | 1), 0, 0, 0] => flag == 1,
            _ => return Err(Ended),
        };
        Ok((Self { grant, lease, writes, write_bytes_max, by_layer }, Piece::read(reader)?))
    }
}

/// Writes a [`CHECKSUMS`].
pub(super) fn write_checksums(
    writer: &mut Writer<'_>,
    grant: u64,
    total: u32,
    first: u32,
    checksums: &[u32],
) -> Result<(), NoRoom> {
    writer.u64(grant)?;
    writer.u32(total)?;
    writer.u32(first)?;
    checksums.iter().try_for_each(|checksum| writer.u32(*checksum))
}

/// Reads a [`CHECKSUMS`].
pub(super) fn read_checksums(body: &[u8]) -> Result<(u64, Piece<'_>), Ended> {
    let mut reader = Reader::new(body);
    Ok((reader.u64()?, Piece::read(reader)?))
}

/// A [`DONE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) grant: u64,
    pub(super) lease: u64,
    /// Blocks, over all layers, of which something has not arrived.
    pub(super) missing: u32,
    /// Blocks, over all layers, whose checksum does not hold.
    pub(super) corrupt: u32,
}

impl Done {
    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u64(self.grant)?;
        writer.u64(self.lease)?;
        writer.u32(self.missing)?;
        writer.u32(self.corrupt)
    }

    pub(super) fn read(body: &[u8]) -> Result<Self, Ended> {
        let mut reader = Reader::new(body);
        let done = Self {
            grant: reader.u64()?,
            lease: reader.u64()?,
            missing: reader.u32()?,
            corrupt: reader.u32()?,
        };
        if reader.rest().is_empty() { Ok(done) } else { Err(Ended) }
    }
}

/// A [`REFUSE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refuse {
    pub(super) grant: u64,
    /// Blocks that the source has for the request.
    pub(super) blocks: u32,
    pub(super) refusal: Refusal,
}

/// The reason why a grant is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The source has another number of blocks.
    Blocks,
    /// The time to live of the grant is over.
    Expired,
    /// The source cannot make a plan of it.
    Plan,
}

impl Refuse {
    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let refusal = match self.refusal {
            Refusal::Blocks => 1,
            Refusal::Expired => 2,
            Refusal::Plan => 3,
        };
        writer.u64(self.grant)?;
        writer.u32(self.blocks)?;
        writer.put(&[refusal, 0, 0, 0])
    }

    pub(super) fn read(body: &[u8]) -> Result<Self, Ended> {
        let mut reader = Reader::new(body);
        let (grant, blocks) = (reader.u64()?, reader.u32()?);
        let refusal = match reader.array()? {
            [1, 0, 0, 0] => Refusal::Blocks,
            [2, 0, 0, 0] => Refusal::Expired,
            [3, 0, 0, 0] => Refusal::Plan,
            _ => return Err(Ended),
        };
        let refuse = Self { grant, blocks, refusal };
        if reader.rest().is_empty() { Ok(refuse) } else { Err(Ended) }
    }
}

#[cfg(test)]
mod tests;
