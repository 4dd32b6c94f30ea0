//! Operations that are counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::collective::CollectiveError;
use crate::collective::call::Collective;
use crate::collective::communicator::algorithms::Algorithm;
use crate::metrics::{self, Counter, Times};

/// Operations of the fast path that are told together: 128, so that an operation of 1,460 instructions takes about 10
/// more for it.
const QUICK: u64 = 128;

/// The counts of a communicator, by collective and algorithm.
#[derive(Debug)]
pub(crate) struct Tallies(Box<[Tally]>);

/// The count of a collective by one algorithm. Most collectives are never called, so each has its series from the first
/// count that is told.
#[derive(Debug, Default)]
struct Tally {
    /// Operations of the fast path that were not told yet, and their bytes.
    quick: [AtomicU64; 2],
    told: OnceLock<Arc<Told>>,
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

impl Default for Tallies {
    fn default() -> Self {
        Self((0..Collective::CODES * Algorithm::ALL.len()).map(|_| Tally::default()).collect())
    }
}

impl Tallies {
    #[inline(always)]
    fn of(&self, (collective, algorithm): (Collective, Algorithm)) -> Option<&Tally> {
        self.0.get(collective as usize * Algorithm::ALL.len() + algorithm as usize)
    }

    /// Counts an operation that its caller's thread has ended.
    #[inline(always)]
    pub(crate) fn quick(&self, of: (Collective, Algorithm), bytes: usize, started: Instant) {
        let Some(tally) = self.of(of) else { return };
        let [operations, sum] = &tally.quick;
        // A communicator has one caller at a time, so that no count is lost. An atomic addition would wait until the
        // peer's processor has taken what this one has written.
        let count = operations.load(Ordering::Relaxed) + 1;
        operations.store(count, Ordering::Relaxed);
        sum.store(sum.load(Ordering::Relaxed).wrapping_add(bytes as u64), Ordering::Relaxed);
        if count >= QUICK {
            tally.tell_quick(of, started);
        }
    }

    /// Begins to count an operation, whose time counts from `started` on.
    pub(crate) fn begin(
        &self,
        of: (Collective, Algorithm),
        bytes: usize,
        started: impl FnOnce() -> Instant,
    ) -> Operation {
        Operation(self.of(of).map(|tally| (Arc::clone(tally.told(of)), bytes as u64, started())))
    }
}

impl Drop for Tallies {
    fn drop(&mut self) {
        for (index, tally) in self.0.iter().enumerate() {
            let collective = Collective::of_code((index / Algorithm::ALL.len()) as u8);
            let algorithm = Algorithm::ALL[index % Algorithm::ALL.len()];
            collective.into_iter().for_each(|collective| _ = tally.tell_counts((collective, algorithm)));
        }
    }
}

impl Tally {
    fn told(&self, of: (Collective, Algorithm)) -> &Arc<Told> {
        self.told.get_or_init(|| {
            let (done, bytes, times) = metrics::collectives(of.0.name(), of.1.name());
            Arc::new(Told { of, done, bytes, times })
        })
    }

    /// Tells the recorder of the operations of the fast path, the last of which began at that time.
    #[cold]
    #[inline(never)]
    fn tell_quick(&self, of: (Collective, Algorithm), started: Instant) {
        let count = self.tell_counts(of);
        self.told(of).times.record(started.elapsed(), count as usize);
    }

    fn tell_counts(&self, of: (Collective, Algorithm)) -> u64 {
        let [count, bytes] = self.quick.each_ref().map(|quick| quick.swap(0, Ordering::Relaxed));
        if count > 0 {
            let told = self.told(of);
            told.done.add(count);
            told.bytes.add(bytes);
        }
        count
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
