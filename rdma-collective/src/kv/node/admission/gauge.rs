//! Gauges of what is under way, and permits, which count in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Full, Load};
use crate::engine::Nudge;

/// Transfers and bytes under way. Whoever has the table adds; permits subtract on any thread.
#[derive(Debug, Default)]
pub(in crate::kv::node) struct Gauge {
    transfers: AtomicUsize,
    bytes: AtomicU64,
}

/// The bounds of a gauge.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) transfers: usize,
    pub(super) bytes: u64,
    /// The names of both bounds, for whoever waits.
    pub(super) names: [Full; 2],
}

/// The gauge of a node, and the way to its thread, which admits those who wait.
#[derive(Debug)]
pub(super) struct NodeGauge {
    pub(super) under_way: Gauge,
    /// Requests that wait for a link or for room.
    pub(super) waiting: AtomicUsize,
    nudge: Arc<Nudge>,
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
    pub(super) fn full(&self, bytes: u64, bound: &Bound) -> Option<Full> {
        let [transfers, too_long] = bound.names;
        match self.transfers.load(Ordering::SeqCst) {
            0 => None,
            under_way if under_way >= bound.transfers => Some(transfers),
            _ => (self.bytes.load(Ordering::SeqCst).saturating_add(bytes) > bound.bytes).then_some(too_long),
        }
    }

    pub(super) fn load(&self, waiting: usize) -> Load {
        let (transfers, bytes) = (self.transfers.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        Load { transfers, bytes, waiting }
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

impl NodeGauge {
    pub(super) fn new(nudge: Arc<Nudge>) -> Self {
        Self { under_way: Gauge::default(), waiting: AtomicUsize::new(0), nudge }
    }
}

impl Permit {
    /// Takes room. The caller has the table, so nobody else takes the same room.
    pub(super) fn take(peer: &Arc<Gauge>, node: &Arc<NodeGauge>, bytes: u64) -> Self {
        peer.add(bytes);
        node.under_way.add(bytes);
        Self { peer: Arc::clone(peer), node: Arc::clone(node), bytes }
    }
}

impl Drop for Permit {
    /// Only counts, and writes to an eventfd if anybody waits, because this may run under the lock of the engine, of a
    /// link's end, or of the table.
    ///
    /// No turn is missed: this subtracts before it looks for those who wait, and they are counted before the table
    /// looks for room, all in one order (`SeqCst`).
    fn drop(&mut self) {
        self.node.under_way.subtract(self.bytes);
        self.peer.subtract(self.bytes);
        if self.node.waiting.load(Ordering::SeqCst) > 0 {
            self.node.nudge.send();
        }
    }
}
