//! Operations that are counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::collective::CollectiveError;
use crate::collective::call::Collective;
use crate::collective::communicator::algorithms::Algorithm;
use crate::metrics::{self, Counter, Times};

/// Operations of the fast path that are told together: 64, so that an operation of 1,500 instructions takes about 26
/// more.
const QUICK: u64 = 64;

/// The counts of a communicator, by collective and algorithm. Most collectives are never called, so each has its count
/// from its first call on.
#[derive(Debug)]
pub(crate) struct Tallies(Box<[OnceLock<Arc<Tally>>]>);

/// The count of a collective by one algorithm.
#[derive(Debug)]
struct Tally {
    of: (Collective, Algorithm),
    done: Counter,
    bytes: Counter,
    times: Times,
    /// Operations of the fast path that were not told yet, and their bytes.
    quick: [AtomicU64; 2],
}

/// An operation that is under way.
#[derive(Debug, Default)]
pub(crate) struct Operation(Option<(Arc<Tally>, u64, Instant)>);

impl Default for Tallies {
    fn default() -> Self {
        Self((0..Collective::CODES * Algorithm::ALL.len()).map(|_| OnceLock::new()).collect())
    }
}

impl Tallies {
    #[inline]
    fn of(&self, of: (Collective, Algorithm)) -> Option<&Arc<Tally>> {
        let (collective, algorithm) = of;
        let cell = self.0.get(collective as usize * Algorithm::ALL.len() + algorithm as usize)?;
        Some(cell.get_or_init(|| Arc::new(Tally::new(of))))
    }

    /// Counts an operation that its caller's thread has ended.
    #[inline]
    pub(crate) fn quick(&self, of: (Collective, Algorithm), bytes: usize, started: Instant) {
        let Some(tally) = self.of(of) else { return };
        let [operations, sum] = &tally.quick;
        // A communicator has one caller at a time, so that no count is lost. An atomic addition would wait until the
        // peer's processor has taken what this one has written.
        let count = operations.load(Ordering::Relaxed) + 1;
        operations.store(count, Ordering::Relaxed);
        sum.store(sum.load(Ordering::Relaxed).wrapping_add(bytes as u64), Ordering::Relaxed);
        if count >= QUICK {
            tally.tell_quick(started);
        }
    }

    /// Begins to count an operation, whose time counts from `started` on.
    pub(crate) fn begin(
        &self,
        of: (Collective, Algorithm),
        bytes: usize,
        started: impl FnOnce() -> Instant,
    ) -> Operation {
        Operation(self.of(of).map(|tally| (Arc::clone(tally), bytes as u64, started())))
    }
}

impl Drop for Tallies {
    fn drop(&mut self) {
        self.0.iter().filter_map(OnceLock::get).for_each(|tally| _ = tally.tell_counts());
    }
}

impl Tally {
    #[cold]
    fn new(of: (Collective, Algorithm)) -> Self {
        let (done, bytes, times) = metrics::collectives(of.0.name(), of.1.name());
        Self { of, done, bytes, times, quick: Default::default() }
    }

    /// Tells the recorder of the operations of the fast path, the last of which began at that time.
    #[cold]
    fn tell_quick(&self, started: Instant) {
        let count = self.tell_counts();
        self.times.record(started.elapsed(), count as usize);
    }

    fn tell_counts(&self) -> u64 {
        let [count, bytes] = self.quick.each_ref().map(|quick| quick.swap(0, Ordering::Relaxed));
        self.done.add(count);
        self.bytes.add(bytes);
        count
    }
}

impl Operation {
    /// Counts the end of the operation; only the first call counts.
    pub(crate) fn end(&mut self, outcome: Result<(), &CollectiveError>) {
        let Some((tally, bytes, begun)) = self.0.take() else { return };
        match outcome {
            Ok(()) => {
                tally.done.add(1);
                tally.bytes.add(bytes);
                tally.times.record(begun.elapsed(), 1);
            }
            Err(error) => {
                let (collective, algorithm) = tally.of;
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
