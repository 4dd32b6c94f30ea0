//! Messages of revocation: one side asks, the other answers when it has stopped.

use super::field::{Field, codes, fields, message, take_zeros};
use crate::kv::RequestId;
use crate::link::codec::{Ended, NoRoom, Reader, Writer};
use crate::link::control::Kind;

/// Nothing more is to be written for a grant: from decode to prefill.
pub(in crate::kv) const REVOKE: Kind = Kind(37);
/// Nothing more will be written for a grant: from prefill to decode, asked or not.
pub(in crate::kv) const QUIESCED: Kind = Kind(38);

/// A grant ended before it was sent, so that no push waits for it: from decode to prefill.
pub(in crate::kv) const WITHDRAW: Kind = Kind(50);

/// The reason why a transfer is ended before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kv) enum Reason {
    /// A user revoked the transfer.
    Revoked = 1,
    /// The transfer missed its deadline.
    Expired = 2,
}

codes!(Reason: Revoked, Expired);

message! {
    /// A [`REVOKE`].
    Revoke {
        grant: u64,
        reason: Reason [3 zeros],
    }
}

message! {
    /// A [`QUIESCED`].
    Quiesced {
        grant: u64,
        reason: Reason [3 zeros],
        /// Writes that were posted: when as many have arrived, nothing of the grant is under way.
        writes: u32,
    }
}

message! {
    /// A [`WITHDRAW`].
    Withdraw {
        request: RequestId,
        reason: Reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revocations_come_back_and_other_lengths_and_reasons_do_not() {
        for reason in [Reason::Revoked, Reason::Expired] {
            let mut bytes = [0; 16];
            let (revoke, quiesced) =
                (Revoke { grant: 1 << 40, reason }, Quiesced { grant: 7, reason, writes: 9 });
            revoke.write(&mut Writer::new(&mut bytes)).unwrap();
            assert_eq!(Revoke::read(&bytes[..12]), Ok(revoke));
            assert_eq!((Revoke::read(&bytes[..11]), Revoke::read(&bytes)), (Err(Ended), Err(Ended)));
            quiesced.write(&mut Writer::new(&mut bytes)).unwrap();
            assert_eq!((Quiesced::read(&bytes), Quiesced::read(&bytes[..12])), (Ok(quiesced), Err(Ended)));
            for odd in [0, 3, 255] {
                bytes[8] = odd;
                assert_eq!((Revoke::read(&bytes[..12]), Quiesced::read(&bytes)), (Err(Ended), Err(Ended)));
            }
        }
    }
}
