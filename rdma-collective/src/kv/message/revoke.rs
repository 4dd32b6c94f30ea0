//! Messages of revocation: one side asks, the other answers when it has stopped.

use crate::link::codec::{Ended, NoRoom, Reader, Writer};
use crate::link::control::Kind;

/// Nothing more is to be written for a grant: from decode to prefill.
pub(in crate::kv) const REVOKE: Kind = Kind(37);
/// Nothing more will be written for a grant: from prefill to decode, asked or not.
pub(in crate::kv) const QUIESCED: Kind = Kind(38);

/// The reason why a transfer is ended before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kv) enum Reason {
    /// A user revoked or cancelled the transfer.
    Revoked,
    /// The transfer missed its deadline.
    Expired,
}

impl Reason {
    pub(in crate::kv) fn write(self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let code = match self {
            Self::Revoked => 1,
            Self::Expired => 2,
        };
        writer.put(&[code, 0, 0, 0])
    }

    pub(in crate::kv) fn read(reader: &mut Reader<'_>) -> Result<Self, Ended> {
        match reader.array()? {
            [1, 0, 0, 0] => Ok(Self::Revoked),
            [2, 0, 0, 0] => Ok(Self::Expired),
            _ => Err(Ended),
        }
    }
}

/// A [`REVOKE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kv) struct Revoke {
    pub(in crate::kv) grant: u64,
    pub(in crate::kv) reason: Reason,
}

impl Revoke {
    pub(in crate::kv) fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u64(self.grant)?;
        self.reason.write(writer)
    }

    pub(in crate::kv) fn read(body: &[u8]) -> Result<Self, Ended> {
        let mut reader = Reader::new(body);
        let revoke = Self { grant: reader.u64()?, reason: Reason::read(&mut reader)? };
        if reader.rest().is_empty() { Ok(revoke) } else { Err(Ended) }
    }
}

/// A [`QUIESCED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kv) struct Quiesced {
    pub(in crate::kv) grant: u64,
    pub(in crate::kv) reason: Reason,
    /// Writes that were posted: when as many have arrived, nothing of the grant is under way.
    pub(in crate::kv) writes: u32,
}

impl Quiesced {
    pub(in crate::kv) fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u64(self.grant)?;
        self.reason.write(writer)?;
        writer.u32(self.writes)
    }

    pub(in crate::kv) fn read(body: &[u8]) -> Result<Self, Ended> {
        let mut reader = Reader::new(body);
        let quiesced =
            Self { grant: reader.u64()?, reason: Reason::read(&mut reader)?, writes: reader.u32()? };
        if reader.rest().is_empty() { Ok(quiesced) } else { Err(Ended) }
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
