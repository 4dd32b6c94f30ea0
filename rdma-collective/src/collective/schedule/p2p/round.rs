//! One round of one rank.

use crate::collective::schedule::Place;

/// What a rank does in a round: it copies, and then sends one message and receives one, each cut into as many as need be.
/// All of it may be absent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// From where to where.
    pub(super) copy: Option<[Place; 2]>,
    pub(super) send: Option<Send>,
    pub(super) receive: Option<Receive>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Send {
    pub(super) to: u32,
    pub(super) source: Place,
    /// Whether this rank changes the source before it can know that the message has arrived.
    pub(super) copied: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Receive {
    pub(super) from: u32,
    pub(super) target: Place,
    /// What it is reduced with.
    pub(super) operand: Option<Place>,
    /// Whether all ranks are then in it.
    pub(super) last: bool,
}

impl Round {
    pub(super) fn send(to: u32, source: Place, copied: bool) -> Self {
        Self { send: Some(Send { to, source, copied }), ..Self::default() }
    }

    pub(super) fn copy_from(from: u32, target: Place) -> Self {
        Self { receive: Some(Receive { from, target, operand: None, last: false }), ..Self::default() }
    }

    pub(super) fn reduce_from(from: u32, operand: Place, target: Place, last: bool) -> Self {
        Self { receive: Some(Receive { from, target, operand: Some(operand), last }), ..Self::default() }
    }

    pub(super) fn copy(source: Place, target: Place) -> Self {
        Self { copy: Some([source, target]), ..Self::default() }
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.copy.is_none() && self.send.is_none() && self.receive.is_none()
    }

    /// Both sends and receives.
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

/// Whom a rank exchanges with in a round: itself in one of them.
pub(super) fn partner([rank, ranks]: [u32; 2], round: u32) -> u32 {
    if round >= rank { round - rank } else { round + (ranks - rank) }
}
