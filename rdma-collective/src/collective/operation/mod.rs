//! The control data of an operation: its header, the abort of a failed one, and the report of a long wait.
//!
//! This file owns how they are encoded. `call` gives the codes of collectives, data types and reductions their
//! meaning.

use crate::collective::AbortReason;
use crate::link::codec::{Ended, NoRoom, Reader, Writer};
use crate::link::control::Kind;
use crate::link::mailbox::HEADER_BYTES;

/// A [`Header`] alone, from a rank whose operation has no first message.
pub(crate) const OPERATION: Kind = Kind(16);
/// An [`Abort`].
pub(crate) const ABORT: Kind = Kind(17);

/// A [`WaitReport`].
pub(crate) const WAITS: Kind = Kind(18);

/// A [`LaneFenced`].
pub(crate) const LANE_FENCED: Kind = Kind(19);

/// Reasons of an [`Abort`] by their codes.
const REASONS: [AbortReason; 6] = [
    AbortReason::Other,
    AbortReason::PeerFailed,
    AbortReason::DeadlineExceeded,
    AbortReason::Mismatch,
    AbortReason::Requested,
    AbortReason::Queued,
];

/// The reason for ending the link to a peer whose bytes in place of a [`Header`] are none.
pub(crate) const DAMAGED: &str = "a header that is damaged";

/// A [`Header`] as the words of a cache line, in a message between ranks of one host.
pub(crate) type LineHeader = [u64; 3];

/// The header of an operation: its sequence number, and the arguments that must be equal on all ranks.
///
/// A rank sends its header in front of its first message to each rank, and in a control message where the messages do
/// not show a mistake.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) rank: u32,
    /// The number of operations of the communicator before this one.
    pub(crate) sequence: u64,
    pub(crate) count: u64,
    pub(crate) collective: u8,
    pub(crate) data_type: u8,
    /// The code of the reduction; 0 if nothing is reduced.
    pub(crate) reduction: u8,
    /// The root; 0 if the collective has none.
    pub(crate) root: u32,
}

/// The news that the sender has fenced its end of a lane, so that nothing of that lane lands there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaneFenced {
    /// The number of the lane within its link.
    pub(crate) lane: u8,
    /// Messages that cost a credit and that the sender had taken from the lane.
    pub(crate) taken: u64,
}

/// The news that an operation has failed. Each rank passes it on to all linked ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Abort {
    pub(crate) sequence: u64,
    /// The rank at fault, as far as is known.
    pub(crate) culprit: u32,
    /// The rank that found out.
    pub(crate) reporter: u32,
    pub(crate) reason: AbortReason,
}

/// The report of a rank that has waited for long, or waits no more. The wait graph finds the late rank from these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitReport {
    /// The operation in which the rank waits.
    pub(crate) sequence: u64,
    /// The rank at the end of the chain of waits; the reporting rank itself, if it waits no more.
    pub(crate) culprit: u32,
    /// The number of waiting ranks in between.
    pub(crate) hops: u32,
    /// The header of the operation in which the rank waits. It means nothing if the rank waits no more.
    pub(crate) waits_in: Header,
}

impl Header {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u64(self.sequence)?;
        writer.u64(self.count)?;
        writer.u32(self.rank)?;
        // The last byte is reserved; `read` refuses any other value than 0.
        writer.put(&[self.collective, self.data_type, self.reduction, 0])?;
        writer.u32(self.root)
    }

    /// Reads a header from a slot or from a control message. All bytes behind it must be 0.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Ended> {
        let mut reader = Reader::new(bytes);
        let (sequence, count, rank) = (reader.u64()?, reader.u64()?, reader.u32()?);
        let [collective, data_type, reduction, reserved] = reader.array()?;
        let root = reader.u32()?;
        // Every rank writes 0 to the unused bytes, so any other value shows that these bytes are no header.
        if reserved != 0 || reader.rest().iter().any(|byte| *byte != 0) {
            return Err(Ended);
        }
        Ok(Self { rank, sequence, count, collective, data_type, reduction, root })
    }

    /// The header as the bytes in front of a message.
    pub(crate) fn in_slot(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let written = self.write(&mut Writer::new(&mut bytes));
        debug_assert!(written.is_ok(), "the header has room for it");
        bytes
    }

    /// The header as the words of a line. The rank is left out, because each line has one writer.
    #[inline]
    pub(crate) fn in_line(&self) -> LineHeader {
        let Self { sequence, count, collective, data_type, reduction, root, .. } = *self;
        let [r0, r1, r2, r3] = root.to_le_bytes();
        [sequence, count, u64::from_le_bytes([collective, data_type, reduction, 0, r0, r1, r2, r3])]
    }

    /// The header that `rank` has written to a line; `None` if the words are no header.
    #[inline]
    pub(crate) fn of_line([sequence, count, rest]: LineHeader, rank: u32) -> Option<Self> {
        let [collective, data_type, reduction, reserved, root @ ..] = rest.to_le_bytes();
        let root = u32::from_le_bytes(root);
        // A damaged line can have any value here, and no rank writes another than 0.
        (reserved == 0).then_some(Self { rank, sequence, count, collective, data_type, reduction, root })
    }

    /// Whether both ranks have called the same operation: all fields but the rank are equal.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        Self { rank: other.rank, ..*self } == *other
    }
}

impl Abort {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u64(self.sequence)?;
        writer.u32(self.culprit)?;
        writer.u32(self.reporter)?;
        let reason = REASONS.iter().position(|reason| *reason == self.reason).unwrap_or_default() as u8;
        writer.put(&[reason, 0, 0, 0])
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Ended> {
        let mut reader = Reader::new(bytes);
        let (sequence, culprit, reporter) = (reader.u64()?, reader.u32()?, reader.u32()?);
        // An unknown reason is no damage: that the operation has failed matters more than why.
        let reason = REASONS.get(usize::from(reader.u8()?)).copied().unwrap_or(AbortReason::Other);
        if reader.rest() != [0; 3] {
            return Err(Ended);
        }
        Ok(Self { sequence, culprit, reporter, reason })
    }
}

impl WaitReport {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u64(self.sequence)?;
        writer.u32(self.culprit)?;
        writer.u32(self.hops)?;
        self.waits_in.write(writer)
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Ended> {
        let mut reader = Reader::new(bytes);
        let (sequence, culprit, hops) = (reader.u64()?, reader.u32()?, reader.u32()?);
        Ok(Self { sequence, culprit, hops, waits_in: Header::read(reader.rest())? })
    }
}

impl LaneFenced {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put(&[self.lane, 0, 0, 0])?;
        writer.u64(self.taken)
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Ended> {
        let mut reader = Reader::new(bytes);
        let (lane, reserved, taken) = (reader.u8()?, reader.array::<3>()?, reader.u64()?);
        if reserved == [0; 3] && reader.rest().is_empty() { Ok(Self { lane, taken }) } else { Err(Ended) }
    }
}

#[cfg(test)]
mod tests;
