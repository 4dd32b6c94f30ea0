//! The transfer of one buffer: a send, a receive, or both between a rank and itself.
//!
//! A send and a receive that share one buffer are two transfers, each a strand of its own, so that the send never waits
//! for the receive.

use super::round::{Receive, Round};
use super::{Algorithm, Cut, P2pSchedule};
use crate::collective::schedule::{Extent, Span};

/// A send or a receive of `bytes` bytes, which are the whole buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// The input goes to a rank. It is `copied` if a receive overwrites the same buffer.
    Send { to: u32, bytes: usize, copied: bool },
    /// The output comes from a rank. If the same buffer is sent to a rank, each chunk is overwritten `after` it was
    /// put there.
    Receive { from: u32, bytes: usize, after: Option<u32> },
    /// The input becomes the output of this rank.
    Copy { bytes: usize },
}

impl P2pSchedule {
    /// The steps of a transfer. Both ends must use the same `cut`.
    pub(crate) fn transfer(transfer: Transfer, cut: Cut) -> Self {
        // A transfer of no elements still sends one empty message, because its header must be compared.
        Self::made(Algorithm::Transfer(transfer), cut.with_empty(), None)
    }
}

impl Transfer {
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Send { bytes, .. } | Self::Receive { bytes, .. } | Self::Copy { bytes } => bytes,
        }
    }

    /// The only round.
    pub(super) fn round(self) -> Round {
        let span = Span { offset: 0, len: self.bytes() };
        let (source, target) = (Extent::input(span), Extent::output(span));
        match self {
            Self::Send { to, copied, .. } => Round::send(to, source, copied),
            Self::Receive { from, after, .. } => {
                let receive = Receive { from, target, operand: None, last: false, after };
                Round { receive: Some(receive), ..Round::default() }
            }
            Self::Copy { .. } => Round::copy(source, target),
        }
    }
}
