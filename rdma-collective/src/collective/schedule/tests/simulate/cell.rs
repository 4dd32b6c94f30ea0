//! Simulated elements, which know which ranks they contain.

/// An element: how often it contains each rank, a sum that only the right rank and index give, and the order in which
/// ranks were reduced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::collective::schedule) struct Cell {
    /// Four bits a rank.
    counts: u64,
    sum: u64,
    /// Four bits a rank, the last one lowest; only known when it is a left fold.
    order: u64,
    /// Whether the work that is done once at the end (the division of an average) has been done.
    finished: bool,
}

impl Cell {
    /// The order of an element that is no left fold, or whose order does not matter.
    const ANY_ORDER: u64 = u64::MAX;

    pub(in crate::collective::schedule) fn of(rank: usize, index: usize) -> Self {
        let place = (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ (index as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let sum = place.wrapping_mul(place | 1);
        Self { counts: 1 << (4 * rank), sum, order: rank as u64, finished: false }
    }

    /// The element `index` of the result: every rank's exactly once, from `first` on around the ring, and then
    /// finished when there was something to reduce.
    pub(in crate::collective::schedule) fn total(ranks: usize, index: usize, first: usize) -> Self {
        let all = (1..ranks).map(|step| Self::of((first + step) % ranks, index));
        Self { finished: ranks > 1, ..all.fold(Self::of(first, index), Self::then) }
    }

    /// Like [`total`](Self::total), in any order.
    pub(in crate::collective::schedule) fn total_in_any_order(ranks: usize, index: usize) -> Self {
        Self { order: Self::ANY_ORDER, ..Self::total(ranks, index, 0) }
    }

    /// Whether the element is as expected.
    pub(super) fn is(&self, expected: &Self) -> bool {
        let order = if expected.order == Self::ANY_ORDER { Self::ANY_ORDER } else { self.order };
        Self { order, ..*self } == *expected
    }

    /// Whether the element contains any rank.
    pub(super) fn is_set(&self) -> bool {
        self.counts != 0
    }

    /// This cell reduced with `own`, which is one rank's element or contains several ranks.
    pub(super) fn then(self, own: Self) -> Self {
        assert!(self.is_set() && own.is_set(), "{self:?} is reduced with {own:?}");
        assert!(self.counts & own.counts == 0, "{own:?} has ranks that are in {self:?}");
        assert!(!self.finished && !own.finished, "{own:?} comes after {self:?}");
        let is_fold = own.counts.is_power_of_two() && self.order != Self::ANY_ORDER;
        let order = if is_fold { self.order << 4 | own.order } else { Self::ANY_ORDER };
        let sum = self.sum.wrapping_add(own.sum);
        Self { counts: self.counts + own.counts, sum, order, finished: false }
    }

    /// This cell with the work of the end done or not.
    pub(super) fn finished(self, finished: bool) -> Self {
        Self { finished, ..self }
    }
}
