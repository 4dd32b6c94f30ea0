//! The immediate: the 32 bits that go with a write, and their meaning.
//!
//! The upper four bits are the kind, the rest depends on it. An arrival is known by its immediate and by nothing else:
//! nobody looks at memory to see whether a write has landed, and completeness is decided by counting. Kind 0 does not
//! exist, so that an immediate of zero is an error.

use std::fmt;

/// The meaning of one immediate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Imm {
    /// A message lies in a slot of a mailbox: the `slot` (12 bits), and the `turn` of the slot (16 bits).
    Message { slot: u16, turn: u16 },
    /// The number of mailbox messages that were given back since the lane began: 28 bits, wrapping.
    Freed { count: u32 },
    /// The number of messages that cost a credit and were consumed since the lane began: 28 bits, wrapping.
    Credit { count: u32 },
    /// Write `index` (20 bits) of the transfer in slot `transfer` (8 bits) has landed.
    Block { transfer: u8, index: u32 },
    /// A heartbeat: the sender's process lives. The other bits are 0.
    Alive,
}

/// Bits below the kind.
const VALUE_BITS: u32 = 28;
/// The mask of counters in immediates, which wrap at 28 bits.
pub(crate) const COUNT_MASK: u32 = (1 << VALUE_BITS) - 1;
/// Slots that a mailbox can have, at most.
pub(crate) const SLOTS_MAX: u16 = 1 << 12;
/// Writes that one transfer can have, at most.
pub(crate) const WRITES_MAX: u32 = 1 << 20;
/// Transfers that a lane can carry at once, at most.
pub(crate) const TRANSFERS_MAX: usize = 1 << 8;

/// The error of an immediate whose kind this version does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnknownImm(pub(crate) u32);

impl fmt::Display for UnknownImm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an immediate of unknown kind, {:#010x}", self.0)
    }
}

impl Imm {
    pub(crate) fn encode(self) -> u32 {
        let (kind, value) = match self {
            Self::Message { slot, turn } => (1, (u32::from(slot % SLOTS_MAX) << 16) | u32::from(turn)),
            Self::Freed { count } => (2, count & COUNT_MASK),
            Self::Credit { count } => (3, count & COUNT_MASK),
            Self::Block { transfer, index } => (4, (u32::from(transfer) << 20) | (index % WRITES_MAX)),
            Self::Alive => (5, 0),
        };
        (kind << VALUE_BITS) | value
    }

    pub(crate) fn decode(word: u32) -> Result<Self, UnknownImm> {
        let value = word & COUNT_MASK;
        Ok(match word >> VALUE_BITS {
            1 => Self::Message { slot: (value >> 16) as u16, turn: value as u16 },
            2 => Self::Freed { count: value },
            3 => Self::Credit { count: value },
            4 => Self::Block { transfer: (value >> 20) as u8, index: value % WRITES_MAX },
            5 if value == 0 => Self::Alive,
            _ => return Err(UnknownImm(word)),
        })
    }
}

/// The distance by which the wrapping 28-bit counter `count` is ahead of `known`, if it is at most `limit`.
///
/// `None` for a counter that went back, or further ahead than is possible: such a peer breaks the protocol.
pub(crate) fn advanced(known: u64, count: u32, limit: u64) -> Option<u64> {
    let ahead = u64::from(count.wrapping_sub(known as u32) & COUNT_MASK);
    (ahead <= limit).then_some(ahead)
}

#[cfg(test)]
mod tests;
