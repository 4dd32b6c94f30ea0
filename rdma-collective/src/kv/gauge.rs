//! Gauges of what is under way at a node, and permits, which count in them.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use crate::engine::Nudge;
use crate::metrics;

/// Transfers and bytes under way. Whoever has the table adds; permits subtract on any thread.
#[derive(Debug, Default)]
pub(in crate::kv) struct Gauge {
    transfers: AtomicUsize,
    bytes: AtomicU64,
    /// Whether the next permit that goes back tells the node of this gauge.
    is_awaited: AtomicBool,
}

/// A gauge, among those that live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::kv) struct GaugeId(usize);

/// The bounds of a gauge.
#[derive(Debug, Clone, Copy)]
pub(in crate::kv) struct Bound<Name> {
    pub(in crate::kv) transfers: usize,
    pub(in crate::kv) bytes: u64,
    /// The names of both bounds, for whoever waits.
    pub(in crate::kv) names: [Name; 2],
}

/// The gauge of a node, and the way to its thread, which admits those who wait.
#[derive(Debug)]
pub(in crate::kv) struct NodeGauge {
    pub(in crate::kv) under_way: Gauge,
    /// Requests that wait for a link or for room.
    pub(in crate::kv) waiting: AtomicUsize,
    /// Hears of each gauge that was awaited, once. It never waits, because a permit may go back under any lock.
    freed: Sender<GaugeId>,
    /// Gone with the node, while users may hold handles of transfers that have ended.
    nudge: Weak<Nudge>,
}

/// Room for a transfer, which goes back when this is dropped: with the state of the transfer, so that an outcome that
/// nobody has taken still counts, because its slot at the link's end is taken, too.
#[derive(Debug)]
pub(in crate::kv) struct Permit {
    peer: Arc<Gauge>,
    node: Arc<NodeGauge>,
    bytes: u64,
}

impl Gauge {
    /// The bound that leaves no room for a transfer of so many bytes. The first transfer has room however long it is,
    /// because it would otherwise wait for ever.
    pub(in crate::kv) fn full<Name: Copy>(&self, bytes: u64, bound: &Bound<Name>) -> Option<Name> {
        let [transfers, too_long] = bound.names;
        match self.transfers.load(Ordering::SeqCst) {
            0 => None,
            under_way if under_way >= bound.transfers => Some(transfers),
            _ => (self.bytes.load(Ordering::SeqCst).saturating_add(bytes) > bound.bytes).then_some(too_long),
        }
    }

    /// Whether there is room for a transfer of so many bytes. If not, the node hears once a permit has gone back.
    pub(in crate::kv) fn has_room_or_tells<Name: Copy>(&self, bytes: u64, bound: &Bound<Name>) -> bool {
        let has_room = || self.full(bytes, bound).is_none();
        has_room() || {
            self.is_awaited.store(true, Ordering::SeqCst);
            // The last permit may have gone back just before.
            has_room()
        }
    }

    /// Transfers and bytes under way.
    pub(in crate::kv) fn load(&self) -> (usize, u64) {
        (self.transfers.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn add(&self, bytes: u64) {
        self.transfers.fetch_add(1, Ordering::SeqCst);
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    fn subtract(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.transfers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl GaugeId {
    /// The address, which no other gauge has meanwhile.
    pub(in crate::kv) fn of(gauge: &Arc<Gauge>) -> Self {
        Self(Arc::as_ptr(gauge).addr())
    }
}

impl NodeGauge {
    /// The gauge of a node, and the awaited gauges of its peers that permits have gone back to.
    pub(in crate::kv) fn new(nudge: &Arc<Nudge>) -> (Self, Receiver<GaugeId>) {
        let ((freed, heard), nudge) = (channel(), Arc::downgrade(nudge));
        (Self { under_way: Gauge::default(), waiting: AtomicUsize::new(0), freed, nudge }, heard)
    }

    /// Counts requests that begin to wait.
    pub(in crate::kv) fn wait(&self, requests: usize) {
        self.waiting.fetch_add(requests, Ordering::SeqCst);
        metrics::kv_waiting(requests as i64);
    }

    /// Counts requests that wait no more.
    pub(in crate::kv) fn wait_no_more(&self, requests: usize) {
        self.waiting.fetch_sub(requests, Ordering::SeqCst);
        metrics::kv_waiting(-(requests as i64));
    }
}

impl Drop for NodeGauge {
    /// Nobody waits for a node that is gone.
    fn drop(&mut self) {
        self.wait_no_more(self.waiting.load(Ordering::SeqCst));
    }
}

impl Permit {
    /// Takes room. The caller has the table, so nobody else takes the same room.
    pub(in crate::kv) fn take(peer: &Arc<Gauge>, node: &Arc<NodeGauge>, bytes: u64) -> Self {
        peer.add(bytes);
        node.under_way.add(bytes);
        Self { peer: Arc::clone(peer), node: Arc::clone(node), bytes }
    }

    pub(in crate::kv) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Permit {
    /// Only counts, and tells without a lock if anybody waits, because this may run under the lock of the engine, of a
    /// link's end, or of the table.
    ///
    /// No turn is missed: this subtracts before it looks for those who wait, and they are counted before the table
    /// looks for room, all in one order (`SeqCst`).
    fn drop(&mut self) {
        self.node.under_way.subtract(self.bytes);
        self.peer.subtract(self.bytes);
        if self.peer.is_awaited.swap(false, Ordering::SeqCst) {
            // Nobody hears after the end of the node.
            _ = self.node.freed.send(GaugeId::of(&self.peer));
        }
        if self.node.waiting.load(Ordering::SeqCst) > 0 {
            self.node.nudge.upgrade().into_iter().for_each(|nudge| nudge.send());
        }
    }
}
