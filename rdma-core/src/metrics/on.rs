//! Metrics that are on: each thread keeps what it counts under a [`Hold`](crate::log::Hold), and tells the recorder at
//! the end of its last one, as it writes its log lines.
//!
//! Counts of one series are added up meanwhile, so that what is kept is bounded by the number of series.

use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

#[doc(hidden)]
pub use ::metrics as facade;
use facade::{Key, Label, Level, Metadata, Recorder, with_recorder};

use super::{Kind, METRICS, Metric, Unit};
use crate::log;
use crate::memory::FirstProcess;

/// Most labels of a metric.
const LABELS_MAX: usize = 3;
/// Most notes that a thread keeps: further times are left out, because times cannot be added up. A hold is short, so
/// only a flood fills the list.
const NOTES_MAX: usize = 1024;
/// The origin of the metrics, for recorders that filter by it.
static ORIGIN: Metadata<'static> = Metadata::new("rdma", Level::INFO, Some(module_path!()));

thread_local! {
    static NOTES: Notes = const { Notes(RefCell::new(Vec::new())) };
}

/// A metric with the values of its labels.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Series {
    metric: &'static Metric,
    values: [&'static str; LABELS_MAX],
}

/// The notes of a thread. Its end tells those that are left.
struct Notes(RefCell<Vec<Note>>);

/// A count that the recorder has not been told of.
enum Note {
    Add(Series, u64),
    Change(Series, i64),
    Time(Series, Duration),
    Counter(Arc<KeptCounter>),
    Times(Arc<KeptTimes>, Duration, usize),
    /// A handle that nobody keeps any more. Its drop runs code of the recorder, so it is told like a count.
    Gone(Arc<dyn Any>),
}

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Series {
    fn new<const N: usize>(metric: &'static Metric, of: [&'static str; N]) -> Self {
        debug_assert_eq!(metric.labels.len(), N, "{}", metric.name);
        let mut values = [""; LABELS_MAX];
        values.iter_mut().zip(of).for_each(|(value, of)| *value = of);
        Self { metric, values }
    }

    fn key(&self) -> Key {
        let labels = self.metric.labels.iter().zip(self.values);
        let labels = labels.map(|(name, value)| Label::from_static_parts(name, value));
        Key::from_parts(self.metric.name, labels.collect::<Vec<_>>())
    }

    fn counter(&self) -> facade::Counter {
        with_recorder(|recorder| recorder.register_counter(&self.key(), &ORIGIN))
    }

    fn histogram(&self) -> facade::Histogram {
        with_recorder(|recorder| recorder.register_histogram(&self.key(), &ORIGIN))
    }
}

/// Adds to a counter.
pub fn add<const N: usize>(metric: &'static Metric, labels: [&'static str; N], by: u64) {
    if by > 0 {
        keep(Note::Add(Series::new(metric, labels), by));
    }
}

/// Adds to a counter, where `counting` is of the process that counts.
#[cfg(test)]
pub(super) fn add_in<const N: usize>(
    counting: &FirstProcess,
    metric: &'static Metric,
    labels: [&'static str; N],
    by: u64,
) {
    keep_in(counting, Note::Add(Series::new(metric, labels), by));
}

/// Changes a gauge.
pub fn change<const N: usize>(metric: &'static Metric, labels: [&'static str; N], by: i64) {
    if by != 0 {
        keep(Note::Change(Series::new(metric, labels), by));
    }
}

/// Gives a histogram a time.
pub fn seconds<const N: usize>(metric: &'static Metric, labels: [&'static str; N], time: Duration) {
    keep(Note::Time(Series::new(metric, labels), time));
}

/// The process that counts.
static COUNTING: FirstProcess = FirstProcess::new();

/// Keeps a note, and tells the recorder now unless the thread has a hold, or the recorder itself causes the note.
fn keep(note: Note) {
    keep_in(&COUNTING, note);
}

/// Keeps a note of the process that counts. A child that was forked from it counts nothing, because another thread of
/// the parent may have been in the recorder at the fork, under a lock that nobody releases in the child.
fn keep_in(counting: &FirstProcess, note: Note) {
    if !counting.is_here() {
        return note.forget();
    }
    let mut note = Some(note);
    let join = |notes: &Notes| note.take().into_iter().for_each(|note| note.join(&mut notes.0.borrow_mut()));
    match NOTES.try_with(join) {
        Ok(()) if log::may_tell() => publish(),
        Ok(()) => {}
        // The thread is ending, and the count is lost.
        Err(_) => note.into_iter().for_each(Note::forget),
    }
}

/// Tells the recorder all that this thread has kept.
pub(crate) fn publish() {
    let Ok(mut notes) = NOTES.try_with(|kept| kept.0.take()) else { return };
    tell_all(&mut notes);
    let _ = NOTES.try_with(|kept| {
        // Notes that the recorder has caused meanwhile wait for the next time, otherwise this might never end.
        let mut kept = kept.0.borrow_mut();
        if kept.is_empty() {
            *kept = notes;
        }
    });
}

/// Tells the recorder of these notes, unless a child has them from its parent.
fn tell_all(notes: &mut Vec<Note>) {
    let tell = |note: Note| if COUNTING.is_here() { log::pass_on(|| note.tell()) } else { note.forget() };
    notes.drain(..).for_each(tell);
}

impl Drop for Notes {
    fn drop(&mut self) {
        tell_all(self.0.get_mut());
    }
}

impl Note {
    /// Drops the note without a call of the recorder: a handle that it has is leaked.
    fn forget(self) {
        if let Self::Counter(counter) = &self {
            // The next count must be kept again.
            counter.pending.store(0, Ordering::Relaxed);
        }
        std::mem::forget(self);
    }

    /// Adds the note to one of its series, or to the end of the list.
    fn join(self, notes: &mut Vec<Self>) {
        for other in notes.iter_mut() {
            match (other, &self) {
                (Self::Add(series, sum), Self::Add(of, by)) if series == of => return *sum += by,
                (Self::Change(series, sum), Self::Change(of, by)) if series == of => return *sum += by,
                _ => {}
            }
        }
        let is_time = matches!(self, Self::Time(..) | Self::Times(..));
        if !is_time || notes.len() < NOTES_MAX {
            notes.push(self);
        }
    }

    fn tell(self) {
        match self {
            Self::Add(series, by) => series.counter().increment(by),
            Self::Change(series, by) => {
                let gauge = with_recorder(|recorder| recorder.register_gauge(&series.key(), &ORIGIN));
                // Exact up to 2^53.
                gauge.increment(by as f64);
            }
            Self::Time(series, time) => series.histogram().record(time),
            Self::Counter(counter) => counter.tell(),
            Self::Times(times, time, count) => {
                handle(&times.handle, || times.series.histogram()).record_many(time, count);
            }
            Self::Gone(handle) => drop(handle),
        }
    }
}

/// Returns a handle, which the recorder gives once. Threads that ask at once do not wait for each other, because the
/// recorder runs meanwhile.
fn handle<H: Clone>(kept: &OnceLock<H>, make: impl FnOnce() -> H) -> H {
    if let Some(handle) = kept.get() {
        return handle.clone();
    }
    let handle = make();
    _ = kept.set(handle.clone());
    handle
}

/// A thing that a gauge counts as long as this lasts.
#[derive(Debug)]
pub struct Present(Option<Series>);

impl Present {
    /// Counts a thing.
    #[must_use]
    pub fn new<const N: usize>(metric: &'static Metric, labels: [&'static str; N]) -> Self {
        Self::when(true, metric, labels)
    }

    /// Counts a thing, or nothing.
    #[must_use]
    pub fn when<const N: usize>(is_there: bool, metric: &'static Metric, labels: [&'static str; N]) -> Self {
        let series = is_there.then(|| Series::new(metric, labels));
        series.into_iter().for_each(|series| keep(Note::Change(series, 1)));
        Self(series)
    }

    /// Counts the thing no more.
    pub fn end(&mut self) {
        self.0.take().into_iter().for_each(|series| keep(Note::Change(series, -1)));
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.end();
    }
}

/// A counter whose handle is kept, for paths that count often. The recorder gives the handle at the first count.
#[derive(Debug)]
pub struct Counter(Option<Arc<KeptCounter>>);

struct KeptCounter {
    series: Series,
    handle: OnceLock<facade::Counter>,
    /// The count that the recorder has not been told of. While it is not 0, some thread has a note of this counter.
    pending: AtomicU64,
}

impl Counter {
    /// Makes the counter.
    #[must_use]
    pub fn new<const N: usize>(metric: &'static Metric, labels: [&'static str; N]) -> Self {
        let (handle, pending) = (OnceLock::new(), AtomicU64::new(0));
        Self(Some(Arc::new(KeptCounter { series: Series::new(metric, labels), handle, pending })))
    }

    /// Adds to the counter.
    pub fn add(&self, by: u64) {
        let Some(counter) = self.0.as_ref().filter(|_| by > 0) else { return };
        if counter.pending.fetch_add(by, Ordering::Relaxed) == 0 {
            keep(Note::Counter(Arc::clone(counter)));
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // The note has the handle, so that nothing of the recorder is dropped here.
        self.0.take().into_iter().for_each(|counter| keep(Note::Gone(counter)));
    }
}

impl KeptCounter {
    fn tell(&self) {
        // First, so that a count from now on makes another note, whatever the recorder does.
        let by = self.pending.swap(0, Ordering::Relaxed);
        handle(&self.handle, || self.series.counter()).increment(by);
    }
}

impl std::fmt::Debug for KeptCounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.series.fmt(f)
    }
}

/// A histogram of times whose handle is kept, for paths that count often.
#[derive(Debug)]
pub struct Times(Option<Arc<KeptTimes>>);

#[derive(Debug)]
struct KeptTimes {
    series: Series,
    handle: OnceLock<facade::Histogram>,
}

impl Times {
    /// Makes the histogram.
    #[must_use]
    pub fn new<const N: usize>(metric: &'static Metric, labels: [&'static str; N]) -> Self {
        Self(Some(Arc::new(KeptTimes { series: Series::new(metric, labels), handle: OnceLock::new() })))
    }

    /// Gives the histogram a time, as so many equal ones.
    pub fn record(&self, time: Duration, count: usize) {
        self.0.iter().for_each(|times| keep(Note::Times(Arc::clone(times), time, count)));
    }
}

impl Drop for Times {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|times| keep(Note::Gone(times)));
    }
}

/// A clock that is read where metrics are on.
#[derive(Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins to count.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Tells the installed recorder the help text and the unit of each metric of this crate.
///
/// `rdma_collective::metrics::describe` does so for both crates.
///
/// ```
/// rdma_core::metrics::describe(); // once, after the recorder is installed
/// ```
pub fn describe() {
    describe_all(METRICS);
}

/// Tells the installed recorder the help text and the unit of each of these metrics.
pub fn describe_all(metrics: &[&Metric]) {
    with_recorder(|recorder| metrics.iter().for_each(|metric| metric.describe(recorder)));
}

impl Metric {
    fn describe(&self, recorder: &dyn Recorder) {
        let unit = match self.unit {
            Unit::Count => facade::Unit::Count,
            Unit::Bytes => facade::Unit::Bytes,
            Unit::Seconds => facade::Unit::Seconds,
        };
        let (name, unit, help) = (self.name.into(), Some(unit), self.help.into());
        match self.kind {
            Kind::Counter => recorder.describe_counter(name, unit, help),
            Kind::Gauge => recorder.describe_gauge(name, unit, help),
            Kind::Histogram => recorder.describe_histogram(name, unit, help),
        }
    }
}
