//! Parts of any length, straight from rank to rank.

use std::sync::Arc;

use super::round::{Round, partner};
use crate::collective::schedule::{Buffer, Place, Span};

/// What a rank sends to another one of its input, and receives from it into its output: messages of no bytes, too, and `None` where
/// there is no message at all. What the one sends the other receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::collective) struct Share {
    pub(in crate::collective) sent: Option<Span>,
    pub(in crate::collective) received: Option<Span>,
}

/// In round `t` ranks whose numbers add up to `t`, around, exchange their parts.
#[derive(Clone, Debug)]
pub(super) struct Uneven {
    rank: u32,
    /// By rank.
    shares: Arc<[Share]>,
}

impl Uneven {
    pub(super) fn new(rank: u32, shares: Arc<[Share]>) -> Self {
        Self { rank, shares }
    }

    pub(super) fn rounds(&self) -> u32 {
        self.shares.len() as u32
    }

    pub(super) fn share(&self, rank: u32) -> Share {
        self.shares.get(rank as usize).copied().unwrap_or_default()
    }

    pub(super) fn round(&self, round: u32) -> Round {
        let partner = partner([self.rank, self.rounds()], round);
        let Share { sent, received } = self.share(partner);
        let source = sent.map(|span| Place::of(Buffer::Input, span));
        let target = received.map(|span| Place::of(Buffer::Output, span));
        if partner == self.rank {
            return source
                .zip(target)
                .map_or(Round::default(), |(source, target)| Round::copy(source, target));
        }
        let send = source.map_or(Round::default(), |source| Round::send(partner, source, false));
        send.and(target.map_or(Round::default(), |target| Round::copy_from(partner, target)))
    }
}
