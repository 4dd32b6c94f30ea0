//! The round: what one rank copies, sends and receives in it.
//!
//! Owns no algorithm; `mod.rs` turns a round into steps.

use crate::collective::schedule::Extent;

/// A round of one rank: it copies, then sends one message and receives one. Each part may be absent.
///
/// A message is cut into as many chunks as slots require.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    pub(super) copy: Option<Copying>,
    pub(super) send: Option<Send>,
    pub(super) receive: Option<Receive>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Copying {
    pub(super) source: Extent,
    pub(super) target: Extent,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Send {
    pub(super) to: u32,
    pub(super) source: Extent,
    /// Whether the executor must send a copy, because this rank changes the source before the message is sure to have
    /// arrived.
    pub(super) copied: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Receive {
    pub(super) from: u32,
    pub(super) target: Extent,
    /// The other operand of a reduction; `None` if the message is only stored.
    pub(super) operand: Option<Extent>,
    /// Whether the result contains all ranks.
    pub(super) last: bool,
    /// The rank to which another strand must have put a chunk before this one overwrites it.
    pub(super) after: Option<u32>,
}

impl Round {
    pub(super) fn send(to: u32, source: Extent, copied: bool) -> Self {
        Self { send: Some(Send { to, source, copied }), ..Self::default() }
    }

    pub(super) fn copy_from(from: u32, target: Extent) -> Self {
        let receive = Receive { from, target, operand: None, last: false, after: None };
        Self { receive: Some(receive), ..Self::default() }
    }

    pub(super) fn reduce_from(from: u32, operand: Extent, target: Extent, last: bool) -> Self {
        let receive = Receive { from, target, operand: Some(operand), last, after: None };
        Self { receive: Some(receive), ..Self::default() }
    }

    pub(super) fn copy(source: Extent, target: Extent) -> Self {
        Self { copy: Some(Copying { source, target }), ..Self::default() }
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.copy.is_none() && self.send.is_none() && self.receive.is_none()
    }

    /// The union of two rounds, which must not both have the same part.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            copy: self.copy.or(other.copy),
            send: self.send.or(other.send),
            receive: self.receive.or(other.receive),
        }
    }
}

/// How many rounds there are in which a distance doubles until it reaches all `ranks`.
pub(super) fn doublings(ranks: u32) -> u32 {
    u64::from(ranks).next_power_of_two().trailing_zeros()
}

/// The partner of a rank in a round of a pairwise exchange: the rank with which its number adds up to `round`, modulo
/// `ranks`. In one of the rounds a rank is its own partner.
pub(super) fn partner(rank: u32, ranks: u32, round: u32) -> u32 {
    if round >= rank { round - rank } else { round + (ranks - rank) }
}
