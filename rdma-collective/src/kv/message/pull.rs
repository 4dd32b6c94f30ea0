//! Messages of pulls: leases are offered, taken, recalled and released.

use super::field::{Field, fields, message, take_zeros};
use super::{Piece, write_piece};
use crate::kv::RequestId;
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

message! {
    /// The fixed part of an [`OFFER`].
    Offer {
        lease: u64,
        request: RequestId,
        /// Time to live in milliseconds, counted from its arrival: after that it may not be taken. A duration, because
        /// the two hosts' clocks differ.
        time_to_live_ms: u32,
        /// Whether the list ends with first and end of each group's tokens.
        tokens: bool,
        /// Whether a note follows.
        note: bool [2 zeros],
    } with a list
}

message! {
    /// A [`TAKE`].
    Take {
        lease: u64,
        checksums: bool [3 zeros],
    }
}

message! {
    /// A [`RECALL`].
    Recall {
        lease: u64,
        reason: Reason [3 zeros],
    }
}

message! {
    /// A [`RELEASE`].
    Release {
        lease: u64,
        /// Whether all was read.
        done: bool [3 zeros],
        /// Reads that were done.
        reads: u32,
        /// Blocks, over all layers, whose checksum does not hold.
        corrupt: u32,
        /// Bytes that were wanted and have all been read.
        bytes: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_leases_come_back_and_others_do_not() {
        let mut bytes = [0; 38];
        let offer = Offer { lease: 1, request: 2.into(), time_to_live_ms: 3, tokens: false, note: false };
        offer.write(&mut Writer::new(&mut bytes), &[7, 8, 9], 1, 10).unwrap();
        let (back, piece) = Offer::read(&bytes[..34]).unwrap();
        assert_eq!((back, piece.total, piece.first, piece.numbers().len()), (offer, 3, 1, 2));
        assert!((0..26).chain([27, 38]).all(|len| Offer::read(&bytes[..len]).is_err()));
        let take = Take { lease: 1, checksums: true };
        take.write(&mut Writer::new(&mut bytes)).unwrap();
        assert_eq!((Take::read(&bytes[..12]), Take::read(&bytes[..13])), (Ok(take), Err(Ended)));
        let recall = Recall { lease: 1, reason: Reason::Expired };
        recall.write(&mut Writer::new(&mut bytes)).unwrap();
        assert_eq!((Recall::read(&bytes[..12]), Recall::read(&bytes[..11])), (Ok(recall), Err(Ended)));
        let release = Release { lease: 1, done: true, reads: 9, corrupt: 2, bytes: 4 };
        release.write(&mut Writer::new(&mut bytes)).unwrap();
        assert_eq!((Release::read(&bytes[..28]), Release::read(&bytes[..29])), (Ok(release), Err(Ended)));
        bytes[8] = 2;
        assert_eq!((Release::read(&bytes[..28]), Take::read(&bytes[..12])), (Err(Ended), Err(Ended)));
    }
}
