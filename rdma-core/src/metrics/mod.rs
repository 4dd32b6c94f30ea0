//! Metrics of this library, for the recorder of the [`metrics`](https://docs.rs/metrics) facade that a program
//! installs.
//!
//! The cargo feature `metrics` turns them on; without it nothing is counted, and nothing depends on the facade.
//! `docs/metrics.md` has a table of all metrics and says where to look when one rises.
//!
//! Install the recorder before you open a device. Counts and gauges of what happened before are lost to it, and a
//! handle that counted before stays without a recorder.
//!
//! A recorder is code of the program, as a subscriber of the log is, and the same rule holds for it: it runs in the
//! thread that counts, when that thread has no lock of this library. It may call the library; what that counts is told
//! with the next count. A recorder that panics loses the count that it was given, and nothing else.
//!
//! A child that is forked from a process that has counted counts nothing, because the recorder may be in use at the
//! fork.

#[cfg_attr(feature = "metrics", path = "on.rs")]
#[cfg_attr(not(feature = "metrics"), path = "off.rs")]
mod tell;

#[cfg(feature = "metrics")]
#[doc(hidden)]
pub use self::tell::facade;
pub(crate) use self::tell::publish;
#[doc(hidden)]
pub use self::tell::{Counter, Present, Stopwatch, Times, add, change, seconds};
#[cfg(feature = "metrics")]
pub use self::tell::{describe, describe_all};
#[doc(hidden)]
pub use crate::__metrics_table as table;
use crate::CompletionStatus;
use crate::error::RegisterError;

/// Whether metrics are on. A constant, so that code under `if ON` costs nothing without them.
#[doc(hidden)]
pub const ON: bool = cfg!(feature = "metrics");

/// A metric as a recorder gets it: its name, and the meaning of its numbers.
///
/// The values of labels are names of variants and statuses, so they are few, and none needs an escape.
#[derive(Debug)]
#[non_exhaustive]
pub struct Metric {
    /// Name, which begins with `rdma_`.
    pub name: &'static str,
    /// Kind of the numbers.
    pub kind: Kind,
    /// Unit of the numbers.
    pub unit: Unit,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// Meaning of the numbers, in a sentence.
    pub help: &'static str,
}

/// The kind of a [`Metric`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number of what there is at present.
    Gauge,
    /// Observed values, of which a recorder makes buckets or quantiles.
    Histogram,
}

/// The unit of a [`Metric`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

impl Metric {
    #[doc(hidden)]
    #[must_use]
    pub const fn new(
        (name, kind, unit): (&'static str, Kind, Unit),
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind, unit, labels, help }
    }
}

/// Declares the metrics of a crate, each once, and `METRICS`, the list of them.
#[doc(hidden)]
#[macro_export]
macro_rules! __metrics_table {
    ($($name:ident: $kind:ident($text:literal, $unit:ident, $labels:expr, $help:literal);)*) => {
        $(
            #[doc = $help]
            pub(crate) static $name: $crate::metrics::Metric = $crate::metrics::Metric::new(
                ($text, $crate::metrics::Kind::$kind, $crate::metrics::Unit::$unit),
                &$labels,
                $help,
            );
        )*

        /// The metrics of this crate.
        pub static METRICS: &[&$crate::metrics::Metric] = &[$(&$name),*];
    };
}

table! {
    QUEUE_PAIRS: Gauge("rdma_queue_pairs", Count, [], "Queue pairs that exist.");
    REGISTRATIONS: Gauge("rdma_registrations", Count, [], "Memories that are registered with a device.");
    REGISTERED_BYTES: Gauge("rdma_registered_bytes", Bytes, [], "Bytes of the memories that are registered.");
    REFUSED: Counter("rdma_registrations_refused_total", Count, ["reason"], "Registrations that failed.");
    QUARANTINED_BYTES: Gauge(
        "rdma_quarantined_bytes", Bytes, [], "Bytes of dropped memory that a stopped peer may still write."
    );
    REQUESTS_REFUSED: Counter(
        "rdma_requests_refused_total", Count, [],
        "Requests of peers that the software device refused for their key, range or rights."
    );
    COMPLETION_ERRORS: Counter(
        "rdma_completion_errors_total", Count, ["status"], "Work requests that ended with an error."
    );
}

/// Counts a memory that is registered.
#[inline]
pub(crate) fn registered(bytes: usize) {
    change(&REGISTRATIONS, [], 1);
    change(&REGISTERED_BYTES, [], bytes as i64);
}

/// Counts a memory that is registered no more, or is quarantined.
#[inline]
pub(crate) fn deregistered(bytes: usize) {
    change(&REGISTRATIONS, [], -1);
    change(&REGISTERED_BYTES, [], -(bytes as i64));
}

/// Counts a registration that failed.
#[inline]
pub(crate) fn registration_refused(error: &RegisterError) {
    if ON {
        add(&REFUSED, [error.reason()], 1);
    }
}

/// Counts bytes that go into the quarantine, or leave it.
#[inline]
pub(crate) fn quarantined(bytes: i64) {
    change(&QUARANTINED_BYTES, [], bytes);
}

/// Counts queue pairs that are made or destroyed.
#[inline]
pub(crate) fn queue_pairs(by: i64) {
    change(&QUEUE_PAIRS, [], by);
}

/// Counts a request of a peer that this process's device refused.
#[inline]
pub(crate) fn request_refused() {
    add(&REQUESTS_REFUSED, [], 1);
}

/// Counts a work request that ended with an error.
#[inline]
pub(crate) fn completion_failed(status: CompletionStatus) {
    if ON {
        add(&COMPLETION_ERRORS, [status.explain().map_or("other", |(name, _)| name)], 1);
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests;
