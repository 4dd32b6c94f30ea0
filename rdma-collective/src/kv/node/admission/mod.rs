//! Admission: which request may begin a transfer now, and which waits for room.
//!
//! Each direction of a peer has a gauge of the transfers and bytes under way, and so has the node. A request that finds
//! no link or no room waits in the line of its peer and direction, by its deadline. [`Admission::admit`] gives room to
//! the first deadline of all lines with a link whose own gauge has room: so a peer whose bound is full delays no other
//! peer. A node's bound that is full holds up all lines until there is room for the first of them, so that a long
//! request is not overtaken for ever by short ones.
//!
//! Time and numbers come in from outside, and nothing here wakes anybody: the table does.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::options::NodeOptions;
use crate::engine::Nudge;
use crate::kv::gauge::{Bound, Gauge, NodeGauge, Permit};
use crate::link::imm::TRANSFERS_MAX;

/// The bound for which a request waits, or which it has found full.
///
/// Returned by [`Begin::busy`](super::Begin::busy), and part of [`NodeError::Busy`](super::NodeError::Busy).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Full {
    /// [`NodeOptions::peer_transfers_max`]: transfers of the peer in this direction.
    PeerTransfers,
    /// [`NodeOptions::peer_bytes_max`]: bytes of the peer in this direction.
    PeerBytes,
    /// [`NodeOptions::transfers_max`]: transfers of the node.
    Transfers,
    /// [`NodeOptions::bytes_max`]: bytes of the node.
    Bytes,
    /// [`NodeOptions::waiting_max`]: requests of the node that wait. No request waits for this bound: it fails at once.
    Waiting,
}

/// Transfers and bytes under way, and the requests that wait to begin.
///
/// Returned by [`KvNode::load`](super::KvNode::load) and [`KvNode::peer_load`](super::KvNode::peer_load).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Load {
    /// Transfers that have begun and whose outcome was not taken.
    pub transfers: usize,
    /// Bytes of the blocks of these transfers in this node's pools.
    pub bytes: u64,
    /// Requests that wait for a link or for room.
    pub waiting: usize,
}

/// The turn of a request: its deadline, and the number of its ticket.
pub(super) type Turn = (Instant, u64);

/// The gauge of a node, and those who wait.
#[derive(Debug)]
pub(super) struct Admission {
    /// The bounds of each direction of a peer, and of the node.
    peer: Bound<Full>,
    node: Bound<Full>,
    gauge: Arc<NodeGauge>,
    /// The lines in which anybody is.
    lines: Vec<Line>,
}

/// The requests of a peer, in one direction, that wait for a link or for room, or have room that they have not taken.
#[derive(Debug)]
struct Line {
    gauge: Arc<Gauge>,
    /// Whether there is a link. Before, all wait, so that those go first whose deadlines are first and not those who
    /// look first: both ends of a link so begin the same transfers.
    is_open: bool,
    /// The bytes of each request.
    waiting: BTreeMap<Turn, u64>,
    admitted: BTreeMap<Turn, Permit>,
}

impl Admission {
    pub(super) fn new(options: &NodeOptions, nudge: &Arc<Nudge>) -> Self {
        let (transfers, bytes) = (options.peer_transfers_max.min(TRANSFERS_MAX), options.peer_bytes_max);
        let peer = Bound { transfers, bytes, names: [Full::PeerTransfers, Full::PeerBytes] };
        let (transfers, bytes) = (options.transfers_max, options.bytes_max);
        let node = Bound { transfers, bytes, names: [Full::Transfers, Full::Bytes] };
        Self { peer, node, gauge: Arc::new(NodeGauge::new(nudge)), lines: Vec::new() }
    }

    /// Notes whether a direction of a peer has a link. Without one, requests that have not taken their room wait again,
    /// because others can use it meanwhile. [`admit`](Self::admit) must follow.
    pub(super) fn open(&mut self, gauge: &Arc<Gauge>, has_link: bool) {
        let Some(line) = self.line_mut(gauge) else { return };
        line.is_open = has_link;
        if !has_link {
            let admitted = std::mem::take(&mut line.admitted);
            line.waiting.extend(admitted.iter().map(|(turn, permit)| (*turn, permit.bytes())));
            // Counted before the permits are dropped, so that these tell the node's thread.
            self.gauge.waiting.fetch_add(admitted.len(), Ordering::SeqCst);
        }
    }

    /// Takes room for a request: the room that it has been given, or room that nobody waits for whose turn is earlier.
    /// Fails with the bound that is full.
    pub(super) fn take(&mut self, gauge: &Arc<Gauge>, turn: Turn, bytes: u64) -> Result<Permit, Full> {
        if let Some(line) = self.line_mut(gauge)
            && let Some(permit) = line.admitted.remove(&turn)
        {
            self.close_lines();
            return Ok(permit);
        }
        match self.full(gauge, turn, bytes) {
            Some(full) => Err(full),
            None => Ok(Permit::take(gauge, &self.gauge, bytes)),
        }
    }

    /// Has a request wait, unless it does already. [`admit`](Self::admit) must follow, because room that came before
    /// the request was counted wakes nobody.
    pub(super) fn wait(&mut self, gauge: &Arc<Gauge>, turn: Turn, bytes: u64) {
        if self.line_mut(gauge).is_none() {
            let (waiting, admitted) = (BTreeMap::new(), BTreeMap::new());
            self.lines.push(Line { gauge: Arc::clone(gauge), is_open: false, waiting, admitted });
        }
        let line = self.line_mut(gauge).filter(|line| !line.admitted.contains_key(&turn));
        if line.is_some_and(|line| line.waiting.insert(turn, bytes).is_none()) {
            self.gauge.waiting.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Gives room to as many as there is room for. Returns the numbers of their tickets.
    pub(super) fn admit(&mut self) -> Vec<u64> {
        let mut admitted = Vec::new();
        loop {
            let heads =
                self.lines.iter_mut().filter_map(|line| Some((line.head_with_room(&self.peer)?, line)));
            let Some(((turn, bytes), line)) = heads.min_by_key(|(head, _)| *head) else { break };
            if self.gauge.under_way.full(bytes, &self.node).is_some() {
                break;
            }
            line.waiting.remove(&turn);
            line.admitted.insert(turn, Permit::take(&line.gauge, &self.gauge, bytes));
            self.gauge.waiting.fetch_sub(1, Ordering::SeqCst);
            admitted.push(turn.1);
        }
        admitted
    }

    /// Removes a request that waits no more, or does not take its room. [`admit`](Self::admit) must follow if this
    /// returns `true`, because the turn passes on.
    pub(super) fn leave(&mut self, gauge: &Arc<Gauge>, turn: Turn) -> bool {
        let Some(line) = self.line_mut(gauge) else { return false };
        let (waited, had_room) =
            (line.waiting.remove(&turn).is_some(), line.admitted.remove(&turn).is_some());
        self.gauge.waiting.fetch_sub(usize::from(waited), Ordering::SeqCst);
        self.close_lines();
        waited || had_room
    }

    /// Removes all requests of a direction of a peer, which has left.
    pub(super) fn remove(&mut self, gauge: &Arc<Gauge>) {
        let left = self.lines.extract_if(.., |line| Arc::ptr_eq(&line.gauge, gauge));
        let waited: usize = left.map(|line| line.waiting.len()).sum();
        self.gauge.waiting.fetch_sub(waited, Ordering::SeqCst);
    }

    /// Removes the requests whose deadline has passed. A task that does not look any more so delays nobody for longer.
    /// [`admit`](Self::admit) must follow.
    pub(super) fn expire(&mut self, now: Instant) {
        for line in &mut self.lines {
            let before = line.waiting.len();
            // The number of a ticket is never the highest one.
            line.waiting = line.waiting.split_off(&(now, u64::MAX));
            line.admitted = line.admitted.split_off(&(now, u64::MAX));
            self.gauge.waiting.fetch_sub(before - line.waiting.len(), Ordering::SeqCst);
        }
        self.close_lines();
    }

    /// The first deadline of those in a line.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let firsts =
            self.lines.iter().flat_map(|line| [line.waiting.keys().next(), line.admitted.keys().next()]);
        firsts.flatten().map(|(deadline, _)| *deadline).min()
    }

    /// The bound that a request waits for; `None` while it waits for a link.
    pub(super) fn waits_for(&self, gauge: &Arc<Gauge>, turn: Turn) -> Option<Full> {
        let bytes = self.line(gauge).filter(|line| line.is_open)?.waiting.get(&turn)?;
        self.full(gauge, turn, *bytes)
    }

    pub(super) fn load(&self) -> Load {
        let (transfers, bytes) = self.gauge.under_way.load();
        Load { transfers, bytes, waiting: self.gauge.waiting.load(Ordering::Relaxed) }
    }

    /// The load of both directions of a peer.
    pub(super) fn load_of(&self, gauges: &[Arc<Gauge>; 2]) -> Load {
        gauges.iter().fold(Load::default(), |load, gauge| {
            let (transfers, bytes) = gauge.load();
            Load {
                transfers: load.transfers + transfers,
                bytes: load.bytes.saturating_add(bytes),
                waiting: load.waiting + self.line(gauge).map_or(0, |line| line.waiting.len()),
            }
        })
    }

    /// The bound that is full for a request at its turn, because it holds up the first of its line, or of the node.
    fn full(&self, gauge: &Arc<Gauge>, turn: Turn, bytes: u64) -> Option<Full> {
        let ahead = |head: &(Turn, u64)| head.0 < turn;
        let of_line = self.line(gauge).and_then(Line::head).filter(ahead);
        let of_node =
            self.lines.iter().filter_map(|line| line.head_with_room(&self.peer)).min().filter(ahead);
        let bytes_of_line = of_line.map_or(bytes, |(_, bytes)| bytes);
        let bytes_of_node = of_node.map_or(bytes_of_line, |(_, bytes)| bytes);
        let full = gauge.full(bytes_of_line, &self.peer);
        let full = full.or_else(|| self.gauge.under_way.full(bytes_of_node, &self.node));
        // Room that has come this moment is for those ahead.
        let behind = if of_line.is_some() { Full::PeerTransfers } else { Full::Transfers };
        full.or((of_line.is_some() || of_node.is_some()).then_some(behind))
    }

    fn line(&self, gauge: &Arc<Gauge>) -> Option<&Line> {
        self.lines.iter().find(|line| Arc::ptr_eq(&line.gauge, gauge))
    }

    fn line_mut(&mut self, gauge: &Arc<Gauge>) -> Option<&mut Line> {
        self.lines.iter_mut().find(|line| Arc::ptr_eq(&line.gauge, gauge))
    }

    /// Forgets the lines in which nobody is.
    fn close_lines(&mut self) {
        self.lines.retain(|line| !(line.waiting.is_empty() && line.admitted.is_empty()));
    }
}

impl Line {
    /// The first turn, and its bytes.
    fn head(&self) -> Option<(Turn, u64)> {
        self.waiting.first_key_value().map(|(turn, bytes)| (*turn, *bytes))
    }

    /// The first turn, if the peer has a link and room for it.
    fn head_with_room(&self, bound: &Bound<Full>) -> Option<(Turn, u64)> {
        self.head().filter(|(_, bytes)| self.is_open && self.gauge.full(*bytes, bound).is_none())
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PeerTransfers => {
                "it has as many transfers under way as NodeOptions::peer_transfers_max allows; take the outcomes of \
                 transfers that have ended, wait longer, or raise the bound"
            }
            Self::PeerBytes => {
                "it has as many bytes under way as NodeOptions::peer_bytes_max allows; take the outcomes of transfers \
                 that have ended, wait longer, or raise the bound"
            }
            Self::Transfers => {
                "this node has as many transfers under way as NodeOptions::transfers_max allows; take the outcomes of \
                 transfers that have ended, wait longer, or raise the bound"
            }
            Self::Bytes => {
                "this node has as many bytes under way as NodeOptions::bytes_max allows; take the outcomes of \
                 transfers that have ended, wait longer, or raise the bound"
            }
            Self::Waiting => {
                "as many requests of this node wait as NodeOptions::waiting_max allows; send requests to other nodes, \
                 or raise the bound"
            }
        })
    }
}
