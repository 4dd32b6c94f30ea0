//! Metrics of this library, for the recorder of the [`metrics`](https://docs.rs/metrics) facade that a program
//! installs.
//!
//! The cargo feature `metrics` turns them on, here and in [`rdma_core`]. [`rdma_core::metrics`] says when a recorder
//! runs and what it may do; `docs/metrics.md` has a table of all metrics and says where to look when one rises.
//!
//! Each end counts what it sees: both ends of a transfer count the transfer, by their role, and each rank counts its
//! collectives.

use std::time::Duration;

pub use rdma_core::metrics::Metric;
#[cfg(feature = "metrics")]
pub(crate) use rdma_core::metrics::Times;
pub(crate) use rdma_core::metrics::{Counter, ON, Present, Stopwatch};
use rdma_core::metrics::{add, change, seconds, table};

table! {
    ENGINES: Gauge("rdma_engines", Count, [], "Engines that exist.");
    LINKS: Gauge(
        "rdma_links", Count, ["user"], "Links that are open: ends of KV links, and links of communicators to other ranks."
    );
    FENCES: Counter("rdma_fences_total", Count, ["cause"], "Lanes that this side fenced, by why they had ended.");
    RANKS_LOST: Counter(
        "rdma_ranks_lost_total", Count, ["cause"], "Communicators that ended by an error, by what was wrong."
    );
    COLLECTIVES: Counter(
        "rdma_collectives_total", Count, ["operation", "algorithm", "outcome"], "Collectives that have ended."
    );
    COLLECTIVE_BYTES: Counter(
        "rdma_collective_bytes_total", Bytes, ["operation", "algorithm"],
        "Bytes of this rank's longer buffer in collectives that ended well; of sends and receives, of all their buffers."
    );
    COLLECTIVE_SECONDS: Histogram(
        "rdma_collective_seconds", Seconds, ["operation"], "Time of collectives that ended well."
    );
    KV_BYTES: Counter("rdma_kv_bytes_total", Bytes, ["direction"], "Bytes of KV blocks that are known to have arrived.");
    KV_BLOCKS: Counter(
        "rdma_kv_blocks_total", Count, ["verdict"], "Blocks of transfers that have ended at decode, in each layer."
    );
    KV_TRANSFERS: Counter(
        "rdma_kv_transfers_total", Count, ["role", "way", "outcome"], "KV transfers that have ended."
    );
    KV_SECONDS: Histogram(
        "rdma_kv_transfer_seconds", Seconds, ["role", "way"], "Time of KV transfers from their begin to their end."
    );
    KV_REVOKES: Counter(
        "rdma_kv_revokes_total", Count, ["phase"], "Transfers at decode that were taken back while blocks could land."
    );
    KV_REVOKE_SECONDS: Histogram(
        "rdma_kv_revoke_seconds", Seconds, [], "Time from taking a transfer back until no block could land."
    );
    KV_LEASES: Gauge("rdma_kv_leases", Count, [], "Leases by which transfers read blocks of pools.");
    KV_QUARANTINED: Counter(
        "rdma_kv_quarantined_blocks_total", Count, [], "Blocks of pools that a device did not let go of."
    );
    KV_LATE_WRITES: Counter(
        "rdma_kv_late_writes_refused_total", Count, [], "KV links that ended because a device refused an access to blocks."
    );
    KV_WAITING: Gauge("rdma_kv_waiting", Count, [], "Requests of nodes that wait for a link or for room.");
    KV_PEERS: Gauge("rdma_kv_peers", Count, [], "Peers of nodes, met or dialed.");
}

/// All metrics of both libraries.
///
/// ```
/// let names: Vec<_> = rdma_collective::metrics::all().map(|metric| metric.name).collect();
/// assert!(names.contains(&"rdma_kv_bytes_total") && names.contains(&"rdma_registered_bytes"));
/// ```
pub fn all() -> impl Iterator<Item = &'static Metric> {
    METRICS.iter().chain(rdma_core::metrics::METRICS).copied()
}

/// Tells the installed recorder the help text and the unit of each metric of both libraries.
///
/// ```
/// rdma_collective::metrics::describe(); // once, after the recorder is installed
/// ```
#[cfg(feature = "metrics")]
pub fn describe() {
    rdma_core::metrics::describe();
    rdma_core::metrics::describe_all(METRICS);
}

/// Counts an engine as long as the result lasts.
pub(crate) fn engine() -> Present {
    Present::new(&ENGINES, [])
}

/// Counts a link of a communicator as long as the result lasts.
pub(crate) fn collective_link() -> Present {
    Present::new(&LINKS, ["collective"])
}

/// Counts an end of a KV link as long as the result lasts.
pub(crate) fn kv_link() -> Present {
    Present::new(&LINKS, ["kv"])
}

/// Counts a lane that is fenced, and had ended by `cause` or had not ended.
pub(crate) fn fenced(cause: impl FnOnce() -> Option<&'static str>) {
    if ON {
        add(&FENCES, [cause().unwrap_or("this_side")], 1);
    }
}

/// Counts a communicator that ends.
pub(crate) fn rank_lost(cause: &'static str) {
    add(&RANKS_LOST, [cause], 1);
}

/// The counter of the collectives that end well, by one algorithm, that of their bytes, and their times.
#[cfg(feature = "metrics")]
pub(crate) fn collectives(operation: &'static str, algorithm: &'static str) -> (Counter, Counter, Times) {
    (
        Counter::new(&COLLECTIVES, [operation, algorithm, "done"]),
        Counter::new(&COLLECTIVE_BYTES, [operation, algorithm]),
        Times::new(&COLLECTIVE_SECONDS, [operation]),
    )
}

/// Counts a collective that ends by an error.
#[cfg(feature = "metrics")]
pub(crate) fn collective_failed(operation: &'static str, algorithm: &'static str, outcome: &'static str) {
    add(&COLLECTIVES, [operation, algorithm, outcome], 1);
}

/// The counter of the bytes of an end of a KV link, which sends them or receives them.
pub(crate) fn kv_bytes(sends: bool) -> Counter {
    Counter::new(&KV_BYTES, [if sends { "sent" } else { "received" }])
}

/// Counts a transfer that has ended, by role, way and outcome.
pub(crate) fn kv_transfer([role, way, outcome]: [&'static str; 3], took: Duration) {
    add(&KV_TRANSFERS, [role, way, outcome], 1);
    seconds(&KV_SECONDS, [role, way], took);
}

/// Counts the blocks of a transfer that has ended, with the label of each verdict.
pub(crate) fn kv_blocks<const N: usize>(counts: impl FnOnce() -> [(&'static str, usize); N]) {
    if ON {
        for (verdict, blocks) in counts() {
            add(&KV_BLOCKS, [verdict], blocks as u64);
        }
    }
}

/// Counts a transfer that begins to be taken back.
pub(crate) fn kv_revoke_begun() {
    add(&KV_REVOKES, ["begun"], 1);
}

/// Counts a transfer that was taken back. The last phase is `stopped`, `fenced` or `ended`.
pub(crate) fn kv_revoked(last: &'static str, begun: &Stopwatch) {
    if ON {
        add(&KV_REVOKES, [last], 1);
        seconds(&KV_REVOKE_SECONDS, [], begun.elapsed());
    }
}

/// Counts a lease as long as the result lasts, if it `is_lease`.
pub(crate) fn kv_lease(is_lease: bool) -> Present {
    Present::when(is_lease, &KV_LEASES, [])
}

/// Counts blocks that go into quarantine.
pub(crate) fn kv_quarantined(blocks: impl FnOnce() -> usize) {
    if ON {
        add(&KV_QUARANTINED, [], blocks() as u64);
    }
}

/// Counts a KV link that ends because a device refused an access.
pub(crate) fn kv_late_write() {
    add(&KV_LATE_WRITES, [], 1);
}

/// Counts requests of a node that begin to wait, or wait no more.
pub(crate) fn kv_waiting(by: i64) {
    change(&KV_WAITING, [], by);
}

/// Counts a peer of a node as long as the result lasts.
pub(crate) fn kv_peer() -> Present {
    Present::new(&KV_PEERS, [])
}
