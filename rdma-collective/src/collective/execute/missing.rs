//! Which ranks of a host an operation waits for.

use crate::collective::AbortReason;
use crate::collective::communicator::{Awaited, Direction, Lost, RingLinks, at_fault};
use crate::collective::operation::{Abort, Header};

use super::run::{Stop, is_found_here};

/// Ranks, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Missing(u32);

impl Missing {
    /// All of so many but that one.
    #[inline]
    pub(super) fn all_but(rank: u32, ranks: u32) -> Self {
        Self(((1 << ranks) - 1) & !(1 << rank))
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn contains(self, rank: u32) -> bool {
        1_u32.checked_shl(rank).is_some_and(|bit| self.0 & bit != 0)
    }

    #[inline]
    pub(super) fn remove(&mut self, rank: u32) {
        self.0 &= !(1 << rank);
    }

    #[inline]
    pub(super) fn iter(self) -> impl Iterator<Item = u32> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let rank = left.trailing_zeros();
            (left != 0).then(|| {
                left &= left - 1;
                rank
            })
        })
    }

    /// A neighbour if one is missing, since that may wait for another itself.
    pub(super) fn waits_for(self, ring: &RingLinks) -> Awaited {
        if self.contains(ring.previous.rank) {
            Awaited::Neighbour(Direction::Previous)
        } else if self.contains(ring.next.rank) {
            Awaited::Neighbour(Direction::Next)
        } else {
            Awaited::Ranks(self.0)
        }
    }

    /// Whether they can still come, to the operation of `header`. `ended` are the neighbours' ends, from before what they left was
    /// looked at: who has gone has left its messages before.
    pub(super) fn can_come(
        self,
        header: &Header,
        ring: &RingLinks,
        ended: [Option<Lost>; 2],
    ) -> Result<(), Stop> {
        // Ranks that are further have left theirs: if they have lost one that has not, it will not come.
        let beyond = |abort: &Abort| {
            let lost = abort.reason == AbortReason::PeerFailed && self.contains(abort.culprit);
            lost && !is_found_here(header, abort)
        };
        if let Some(abort) = ring.abort.filter(beyond) {
            return Err(Stop::Abort(abort));
        }
        let waits = [ring.next.rank, ring.previous.rank].map(|rank| self.contains(rank));
        at_fault(ended, waits).map_or(Ok(()), |lost| Err(Stop::Lost(lost)))
    }
}

impl FromIterator<u32> for Missing {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        Self(ranks.into_iter().fold(0, |missing, rank| missing | 1 << rank))
    }
}
