//! Operations that are counted.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use crate::collective::CollectiveError;
use crate::collective::call::Collective;
use crate::collective::communicator::algorithms::Algorithm;
use crate::metrics::{self, Counter, Times};

/// Operations of the fast path that are told together: 128, so that an operation of 1,430 instructions takes about 10
/// more for it.
const QUICK: u64 = 128;

/// The counts of a communicator, by collective and algorithm.
#[derive(Debug)]
pub(crate) struct Tallies {
    /// The fast path's count of the present tally, which itself has an empty one meanwhile. It stands here so that an
    /// operation looks for no tally.
    quick: Quick,
    /// Index of the present tally.
    present: usize,
    all: Box<[Tally]>,
}

/// The count of a collective by one algorithm. Most collectives are never called, so each has its series from the first
/// count that is told.
#[derive(Debug, Default)]
struct Tally {
    quick: Quick,
    told: Option<Arc<Told>>,
}

/// Operations of the fast path that were not told yet. Plain numbers, because a communicator has one caller at a time:
/// an atomic addition would wait until the peer's processor has taken what this one has written.
#[derive(Debug)]
struct Quick {
    /// Operations until the recorder is told, from [`QUICK`] down: an end at 0 takes no comparison.
    left: u64,
    bytes: u64,
}

/// The series of a collective by one algorithm.
#[derive(Debug)]
struct Told {
    of: (Collective, Algorithm),
    done: Counter,
    bytes: Counter,
    times: Times,
}

/// An operation that is under way.
#[derive(Debug, Default)]
pub(crate) struct Operation(Option<(Arc<Told>, u64, Instant)>);

impl Default for Quick {
    fn default() -> Self {
        Self { left: QUICK, bytes: 0 }
    }
}

impl Default for Tallies {
    fn default() -> Self {
        let all = (0..Collective::CODES * Algorithm::ALL.len()).map(|_| Tally::default()).collect();
        Self { quick: Quick::default(), present: 0, all }
    }
}

impl Tallies {
    /// Makes the tally of this collective and algorithm the present one.
    pub(crate) fn turn_to(&mut self, of: (Collective, Algorithm)) {
        self.swap_quick();
        self.present = index(of);
        self.swap_quick();
    }

    /// Exchanges the fast path's count with that of the present tally.
    fn swap_quick(&mut self) {
        let present = self.all.get_mut(self.present);
        present.into_iter().for_each(|tally| mem::swap(&mut tally.quick, &mut self.quick));
    }

    /// Counts an operation of the present tally that its caller's thread has ended. Reads the time at which it began
    /// only where that is told.
    #[inline(always)]
    pub(crate) fn quick(&mut self, bytes: usize, started: impl FnOnce() -> Instant) {
        self.quick.bytes = self.quick.bytes.wrapping_add(bytes as u64);
        self.quick.left -= 1;
        if self.quick.left == 0 {
            self.tell_quick(started());
        }
    }

    /// Tells the recorder of the operations of the present tally, the last of which began at that time.
    #[cold]
    #[inline(never)]
    fn tell_quick(&mut self, started: Instant) {
        let quick = mem::take(&mut self.quick);
        let present = collective(self.present).zip(self.all.get_mut(self.present));
        if let Some((of, tally)) = present {
            let told = tally.told(of);
            told.add_quick(&quick);
            told.times.record(started.elapsed(), QUICK as usize);
        }
    }

    /// Begins to count an operation, whose time counts from `started` on.
    pub(crate) fn begin(
        &mut self,
        of: (Collective, Algorithm),
        bytes: usize,
        started: impl FnOnce() -> Instant,
    ) -> Operation {
        let tally = self.all.get_mut(index(of));
        Operation(tally.map(|tally| (Arc::clone(tally.told(of)), bytes as u64, started())))
    }
}

impl Drop for Tallies {
    fn drop(&mut self) {
        self.swap_quick();
        for (index, tally) in self.all.iter_mut().enumerate() {
            let quick = mem::take(&mut tally.quick);
            if quick.left < QUICK
                && let Some(of) = collective(index)
            {
                tally.told(of).add_quick(&quick);
            }
        }
    }
}

/// The index of a tally.
fn index((collective, algorithm): (Collective, Algorithm)) -> usize {
    collective as usize * Algorithm::ALL.len() + algorithm as usize
}

/// The collective and the algorithm of the tally at `index`.
fn collective(index: usize) -> Option<(Collective, Algorithm)> {
    let collective = Collective::of_code((index / Algorithm::ALL.len()) as u8)?;
    Some((collective, Algorithm::ALL[index % Algorithm::ALL.len()]))
}

impl Tally {
    fn told(&mut self, of: (Collective, Algorithm)) -> &Arc<Told> {
        self.told.get_or_insert_with(|| {
            let (done, bytes, times) = metrics::collectives(of.0.name(), of.1.name());
            Arc::new(Told { of, done, bytes, times })
        })
    }
}

impl Told {
    fn add_quick(&self, quick: &Quick) {
        self.done.add(QUICK - quick.left);
        self.bytes.add(quick.bytes);
    }
}

impl Operation {
    /// Counts the end of the operation; only the first call counts.
    pub(crate) fn end(&mut self, outcome: Result<(), &CollectiveError>) {
        let Some((told, bytes, begun)) = self.0.take() else { return };
        match outcome {
            Ok(()) => {
                told.done.add(1);
                told.bytes.add(bytes);
                told.times.record(begun.elapsed(), 1);
            }
            Err(error) => {
                let (collective, algorithm) = told.of;
                metrics::collective_failed(collective.name(), algorithm.name(), outcome_of(error));
            }
        }
    }
}

fn outcome_of(error: &CollectiveError) -> &'static str {
    match error {
        CollectiveError::TooManyOperations { .. } => "refused",
        error if error.is_refusal() => "refused",
        CollectiveError::DeadlineExceeded { .. } | CollectiveError::Queued => "late",
        CollectiveError::Ended { .. } => "ended",
        _ => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_the_fast_path_are_told_together_however_they_alternate() {
        let mut tallies = Tallies::default();
        let [first, second] =
            [(Collective::AllReduce, Algorithm::Flat), (Collective::Barrier, Algorithm::Flat)];
        for _ in 1..QUICK {
            for (of, bytes) in [(first, 8), (second, 1)] {
                tallies.turn_to(of);
                tallies.quick(bytes, || panic!("told too soon"));
            }
        }
        tallies.turn_to(first);
        assert_eq!((tallies.quick.left, tallies.quick.bytes), (1, 8 * (QUICK - 1)));
        let mut timed = false;
        tallies.quick(8, || {
            timed = true;
            Instant::now()
        });
        assert!(timed, "the last one is timed");
        assert_eq!((tallies.quick.left, tallies.quick.bytes), (QUICK, 0));
        tallies.turn_to(second);
        assert_eq!((tallies.quick.left, tallies.quick.bytes), (1, QUICK - 1));
    }
}
