//! Metrics that are off: types without fields, and functions that do nothing.

use std::time::Duration;

use super::Metric;

/// Adds to a counter.
#[inline(always)]
pub fn add<const N: usize>(_: &'static Metric, _: [&'static str; N], _: u64) {}

/// Changes a gauge.
#[inline(always)]
pub fn change<const N: usize>(_: &'static Metric, _: [&'static str; N], _: i64) {}

/// Gives a histogram a time.
#[inline(always)]
pub fn seconds<const N: usize>(_: &'static Metric, _: [&'static str; N], _: Duration) {}

/// Tells the recorder all that this thread has kept.
#[inline(always)]
pub(crate) fn publish() {}

/// A thing that a gauge counts as long as this lasts.
#[derive(Debug)]
pub struct Present;

impl Present {
    /// Counts a thing.
    #[inline(always)]
    #[must_use]
    pub fn new<const N: usize>(_: &'static Metric, _: [&'static str; N]) -> Self {
        Self
    }

    /// Counts a thing, or nothing.
    #[inline(always)]
    #[must_use]
    pub fn when<const N: usize>(_: bool, _: &'static Metric, _: [&'static str; N]) -> Self {
        Self
    }

    /// Counts the thing no more.
    #[inline(always)]
    pub fn end(&mut self) {}
}

/// A counter whose handle is kept.
#[derive(Debug)]
pub struct Counter;

impl Counter {
    /// Makes the counter.
    #[inline(always)]
    #[must_use]
    pub fn new<const N: usize>(_: &'static Metric, _: [&'static str; N]) -> Self {
        Self
    }

    /// Adds to the counter.
    #[inline(always)]
    pub fn add(&self, _: u64) {}
}

/// A histogram of times whose handle is kept.
#[derive(Debug)]
pub struct Times;

impl Times {
    /// Makes the histogram.
    #[inline(always)]
    #[must_use]
    pub fn new<const N: usize>(_: &'static Metric, _: [&'static str; N]) -> Self {
        Self
    }

    /// Gives the histogram a time, as so many equal ones.
    #[inline(always)]
    pub fn record(&self, _: Duration, _: usize) {}
}

/// A clock that is read where metrics are on.
#[derive(Debug)]
pub struct Stopwatch;

impl Stopwatch {
    /// Begins to count.
    #[inline(always)]
    #[must_use]
    pub fn start() -> Self {
        Self
    }

    /// Returns the time since the start.
    #[inline(always)]
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}
