//! Messages between the two ends of a KV link: the bodies of control messages. `docs/wire.md` has the tables.
//!
//! Lists of blocks and of checksums go in pieces; each piece has the length of the whole list and its own position in
//! it.

mod extend;
mod field;
#[cfg(any(fuzzing, test))]
#[path = "tests/fuzz.rs"]
mod fuzz;
mod note;
mod pull;
mod revoke;

use crate::kv::RequestId;
use crate::link::codec::{Ended, NoRoom, Reader, Writer};
use crate::link::control::Kind;

use field::{Field, codes, fields, message, take_zeros};

pub(super) use extend::{EXTEND, Extend, expires, time_to_live_ms};
#[cfg(any(fuzzing, test))]
pub(crate) use fuzz::fuzz;
pub(super) use note::{LEASE_NOTE, NOTE, NotePiece};
pub(super) use pull::{LEASE_CHECKSUMS, OFFER, Offer, RECALL, RELEASE, Recall, Release, TAKE, Take};
pub(super) use revoke::{QUIESCED, Quiesced, REVOKE, Reason, Revoke, WITHDRAW, Withdraw};

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
/// Where slots for packed writes are: from decode to prefill, before the first grant.
pub(super) const STAGING: Kind = Kind(45);
/// Packed writes have been unpacked: from decode to prefill.
pub(super) const UNPACKED: Kind = Kind(46);

/// Most bytes in front of a list, in every message that has one.
pub(super) const LIST_AT_MOST: usize = 94;

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

message! {
    /// The fixed part of a [`GRANT`].
    Grant {
        grant: u64,
        request: RequestId,
        /// Time to live in milliseconds, counted from its arrival: after that it may not be begun. A duration, because
        /// the two hosts' clocks differ.
        time_to_live_ms: u32,
        /// Slot that the immediates of its writes carry.
        transfer: u8,
        /// Whether prefill has to send checksums.
        checksums: bool,
        /// Whether the list goes on behind the blocks with the bit set of wanted blocks; otherwise all are wanted.
        partial: bool,
        /// Whether the list ends with first and end of each group's tokens; otherwise all tokens of the blocks move.
        tokens: bool,
        /// Whether a note follows.
        note: bool,
        /// Number of blocks in the list.
        blocks: u32,
    } with a list
}

message! {
    /// The fixed part of a [`BEGIN`].
    Begin {
        grant: u64,
        lease: u64,
        writes: u32,
        write_bytes_max: u32,
        /// Shorter pieces are packed.
        pack_bytes: u32,
        /// Slots of decode that packed writes take in turn, a bit each.
        slots: u32,
        /// Whether no write has bytes of two layers, and writes come layer by layer.
        by_layer: bool,
        /// Whether the list ends with first and end of each group's tokens.
        tokens: bool,
        /// Whether a note follows, behind the last write.
        note: bool [1 zeros],
    } with a list
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

message! {
    /// A [`DONE`].
    Done {
        grant: u64,
        lease: u64,
        /// Blocks, over all layers, of which something has not arrived.
        missing: u32,
        /// Blocks, over all layers, whose checksum does not hold.
        corrupt: u32,
    }
}

message! {
    /// A [`STAGING`].
    StagingAt {
        addr: u64,
        rkey: u32,
    }
}

message! {
    /// An [`UNPACKED`].
    Unpacked {
        grant: u64,
        /// Packed writes of the grant, from the first on, whose slots may be used again.
        writes: u32,
    }
}

message! {
    /// A [`REFUSE`].
    Refuse {
        grant: u64,
        /// Blocks that the source has for the request.
        blocks: u32,
        refusal: Refusal [3 zeros],
    }
}

/// The reason why a grant is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The source has another number of blocks.
    Blocks = 1,
    /// The time to live of the grant is over.
    Expired = 2,
    /// The source cannot make a plan of it.
    Plan = 3,
    /// The source has ranges of another number of tokens.
    Tokens = 4,
}

codes!(Refusal: Blocks, Expired, Plan, Tokens);

#[cfg(test)]
mod tests;
