//! Messages of pulls: leases are offered, taken, recalled and released.

use super::{Piece, write_piece};
use crate::kv::message::Reason;
use crate::link::codec::{Ended, NoRoom, Reader, Writer};
use crate::link::control::Kind;

/// Source blocks of a request, to be read: from prefill to decode.
pub(in crate::kv) const OFFER: Kind = Kind(40);
/// Blocks of a lease are read from now on: from decode to prefill.
pub(in crate::kv) const TAKE: Kind = Kind(41);
/// Checksums of the blocks of a lease: from prefill to decode.
pub(in crate::kv) const LEASE_CHECKSUMS: Kind = Kind(42);
/// A lease is to end: from prefill to decode.
pub(in crate::kv) const RECALL: Kind = Kind(43);
/// Nothing of a lease is read any more: from decode to prefill.
pub(in crate::kv) const RELEASE: Kind = Kind(44);

/// The fixed part of an [`OFFER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kv) struct Offer {
    pub(in crate::kv) lease: u64,
    pub(in crate::kv) request: u64,
    /// Time to live in milliseconds, counted from its arrival: after that it may not be taken. A duration, because
    /// the two hosts' clocks differ.
    pub(in crate::kv) time_to_live_ms: u32,
}

impl Offer {
    pub(in crate::kv) fn write(
        &self,
        writer: &mut Writer<'_>,
        blocks: &[u32],
        first: usize,
        room: usize,
    ) -> Result<(), NoRoom> {
        writer.u64(self.lease)?;
        writer.u64(self.request)?;
        writer.u32(self.time_to_live_ms)?;
        write_piece(writer, blocks, first, room)
    }

    pub(in crate::kv) fn read(body: &[u8]) -> Result<(Self, Piece<'_>), Ended> {
        let mut reader = Reader::new(body);
        let offer = Self { lease: reader.u64()?, request: reader.u64()?, time_to_live_ms: reader.u32()? };
        Ok((offer, Piece::read(reader)?))
    }
}

/// A [`TAKE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kv) struct Take {
    pub(in crate::kv) lease: u64,
    pub(in crate::kv) checksums: bool,
}

impl Take {
    pub(in crate::kv) fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u64(self.lease)?;
        writer.put(&[self.checksums.into(), 0, 0, 0])
    }

    pub(in crate::kv) fn read(body: &[u8]) -> Result<Self, Ended> {
        let mut reader = Reader::new(body);
        let lease = reader.u64()?;
        match (reader.array()?, reader.rest()) {
            ([flag @ (0 | 1), 0, 0, 0], []) => Ok(Self { lease, checksums: flag == 1 }),
            _ => Err(Ended),
        }
    }
}

/// A [`RECALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kv) struct Recall {
    pub(in crate::kv) lease: u64,
    pub(in crate::kv) reason: Reason,
}

impl Recall {
    pub(in crate::kv) fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u64(self.lease)?;
        self.reason.write(writer)
    }

    pub(in crate::kv) fn read(body: &[u8]) -> Result<Self, Ended> {
        let mut reader = Reader::new(body);
        let recall = Self { lease: reader.u64()?, reason: Reason::read(&mut reader)? };
        if reader.rest().is_empty() { Ok(recall) } else { Err(Ended) }
    }
}

/// A [`RELEASE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kv) struct Release {
    pub(in crate::kv) lease: u64,
    /// Whether all was read.
    pub(in crate::kv) done: bool,
    /// Reads that were done.
    pub(in crate::kv) reads: u32,
    /// Blocks, over all layers, that were wanted and have all been read.
    pub(in crate::kv) parts: u32,
    /// Blocks, over all layers, whose checksum does not hold.
    pub(in crate::kv) corrupt: u32,
}

impl Release {
    pub(in crate::kv) fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u64(self.lease)?;
        writer.put(&[self.done.into(), 0, 0, 0])?;
        writer.u32(self.reads)?;
        writer.u32(self.parts)?;
        writer.u32(self.corrupt)
    }

    pub(in crate::kv) fn read(body: &[u8]) -> Result<Self, Ended> {
        let mut reader = Reader::new(body);
        let lease = reader.u64()?;
        let done = match reader.array()? {
            [flag @ (0 | 1), 0, 0, 0] => flag == 1,
            _ => return Err(Ended),
        };
        let (reads, parts, corrupt) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let release = Self { lease, done, reads, parts, corrupt };
        if reader.rest().is_empty() { Ok(release) } else { Err(Ended) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_leases_come_back_and_others_do_not() {
        let mut bytes = [0; 40];
        let offer = Offer { lease: 1, request: 2, time_to_live_ms: 3 };
        offer.write(&mut Writer::new(&mut bytes), &[7, 8, 9], 1, 10).unwrap();
        let (back, piece) = Offer::read(&bytes[..36]).unwrap();
        assert_eq!((back, piece.total, piece.first, piece.numbers().len()), (offer, 3, 1, 2));
        assert!((0..28).chain([29, 40]).all(|len| Offer::read(&bytes[..len]).is_err()));
        let take = Take { lease: 1, checksums: true };
        take.write(&mut Writer::new(&mut bytes)).unwrap();
        assert_eq!((Take::read(&bytes[..12]), Take::read(&bytes[..13])), (Ok(take), Err(Ended)));
        let recall = Recall { lease: 1, reason: Reason::Expired };
        recall.write(&mut Writer::new(&mut bytes)).unwrap();
        assert_eq!((Recall::read(&bytes[..12]), Recall::read(&bytes[..11])), (Ok(recall), Err(Ended)));
        let release = Release { lease: 1, done: true, reads: 9, parts: 4, corrupt: 2 };
        release.write(&mut Writer::new(&mut bytes)).unwrap();
        assert_eq!((Release::read(&bytes[..24]), Release::read(&bytes[..25])), (Ok(release), Err(Ended)));
        bytes[8] = 2;
        assert_eq!((Release::read(&bytes[..24]), Take::read(&bytes[..12])), (Err(Ended), Err(Ended)));
    }
}
