//! Times at which numbered things have to be looked at, in order, so that finding the due ones costs nothing for the
//! others.

use std::collections::BTreeSet;
use std::time::Instant;

/// At most one time for each number.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    sorted: BTreeSet<(Instant, usize)>,
    /// The time of each number, by which its entry in `sorted` is found.
    of: Vec<Option<Instant>>,
}

impl Deadlines {
    /// Sets the time of `number`, or removes it.
    pub(super) fn set(&mut self, number: usize, at: Option<Instant>) {
        if self.of.len() <= number {
            self.of.resize(number + 1, None);
        }
        let known = std::mem::replace(&mut self.of[number], at);
        if known != at {
            known.map(|known| self.sorted.remove(&(known, number)));
            at.map(|at| self.sorted.insert((at, number)));
        }
    }

    pub(super) fn get(&self, number: usize) -> Option<Instant> {
        self.of.get(number).copied().flatten()
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.sorted.first().map(|(at, _)| *at)
    }

    /// The numbers whose times are not after `until`.
    pub(super) fn due(&self, until: Instant) -> impl Iterator<Item = usize> {
        self.sorted.range(..=(until, usize::MAX)).map(|(_, number)| *number)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_number_has_one_time_and_the_earliest_come_first() {
        let start = Instant::now();
        let ms = |ms| Some(start + Duration::from_millis(ms));
        let mut deadlines = Deadlines::default();
        for (number, at) in [(3, ms(30)), (1, ms(10)), (2, ms(10)), (3, ms(5)), (2, ms(20)), (4, None)] {
            deadlines.set(number, at);
        }
        assert_eq!((deadlines.first(), deadlines.get(2), deadlines.get(9)), (ms(5), ms(20), None));
        assert_eq!(deadlines.due(start + Duration::from_millis(10)).collect::<Vec<_>>(), [3, 1]);
        (1..4).for_each(|number| deadlines.set(number, None));
        assert_eq!((deadlines.first(), deadlines.get(3)), (None, None));
    }
}
