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

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use super::options::NodeOptions;
use crate::engine::Nudge;
use crate::kv::gauge::{Bound, Gauge, GaugeId, NodeGauge, Permit};
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
    /// [`NodeOptions::peer_waiting_max`]: requests of the peer in this direction that wait. No request waits for this
    /// bound: it fails at once.
    PeerWaiting,
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
    /// Requests that wait at most, of a direction of a peer and of the node.
    waiting_max: [usize; 2],
    gauge: Arc<NodeGauge>,
    /// Gauges on which a line has found no room, and which have got some since.
    freed: Receiver<GaugeId>,
    /// The lines in which anybody is.
    lines: BTreeMap<GaugeId, Line>,
    /// All who are in a line, by their deadlines.
    turns: BTreeSet<(Turn, GaugeId)>,
    /// The first who waits in each line that has a link, without the lines that were found full: those come back when
    /// their gauge is freed, or when the line changes.
    heads: BTreeSet<(Turn, GaugeId)>,
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
    /// The turn that this line has among the heads.
    head: Option<Turn>,
}

impl Admission {
    pub(super) fn new(options: &NodeOptions, nudge: &Arc<Nudge>) -> Self {
        let (transfers, bytes) = (options.peer_transfers_max.min(TRANSFERS_MAX), options.peer_bytes_max);
        let peer = Bound { transfers, bytes, names: [Full::PeerTransfers, Full::PeerBytes] };
        let (transfers, bytes) = (options.transfers_max, options.bytes_max);
        let node = Bound { transfers, bytes, names: [Full::Transfers, Full::Bytes] };
        let (gauge, freed) = NodeGauge::new(nudge);
        let (lines, turns, heads) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let waiting_max = [options.peer_waiting_max, options.waiting_max];
        Self { peer, node, waiting_max, gauge: Arc::new(gauge), freed, lines, turns, heads }
    }

    /// Notes whether a direction of a peer has a link. Without one, requests that have not taken their room wait again,
    /// because others can use it meanwhile. [`admit`](Self::admit) must follow.
    pub(super) fn open(&mut self, gauge: &Arc<Gauge>, has_link: bool) {
        let id = GaugeId::of(gauge);
        let changed = self.lines.get_mut(&id).filter(|line| line.is_open != has_link);
        let Some(line) = changed else { return };
        line.is_open = has_link;
        if !has_link {
            let admitted = std::mem::take(&mut line.admitted);
            line.waiting.extend(admitted.iter().map(|(turn, permit)| (*turn, permit.bytes())));
            // Counted before the permits are dropped, so that these tell the node's thread.
            self.gauge.wait(admitted.len());
        }
        self.rank(id);
    }

    /// Takes room for a request: the room that it has been given, or room that nobody waits for whose turn is earlier.
    /// Fails with the bound that is full.
    pub(super) fn take(&mut self, gauge: &Arc<Gauge>, turn: Turn, bytes: u64) -> Result<Permit, Full> {
        let id = GaugeId::of(gauge);
        if let Some(permit) = self.lines.get_mut(&id).and_then(|line| line.admitted.remove(&turn)) {
            self.turns.remove(&(turn, id));
            self.rank(id);
            return Ok(permit);
        }
        match self.full(gauge, turn, bytes) {
            Some(full) => Err(full),
            None => Ok(Permit::take(gauge, &self.gauge, bytes)),
        }
    }

    /// The bound that lets no further request of a gauge wait.
    pub(super) fn too_many_wait(&self, gauge: &Arc<Gauge>) -> Option<Full> {
        let [peer_max, node_max] = self.waiting_max;
        if self.gauge.waiting.load(Ordering::SeqCst) >= node_max {
            return Some(Full::Waiting);
        }
        (self.waiting_of(gauge) >= peer_max).then_some(Full::PeerWaiting)
    }

    /// Has a request wait, unless it does already. [`admit`](Self::admit) must follow, because room that came before
    /// the request was counted wakes nobody.
    pub(super) fn wait(&mut self, gauge: &Arc<Gauge>, turn: Turn, bytes: u64) {
        let id = GaugeId::of(gauge);
        if self.turns.insert((turn, id)) {
            let line = self.lines.entry(id).or_insert_with(|| Line::new(gauge));
            line.waiting.insert(turn, bytes);
            self.gauge.wait(1);
            self.rank(id);
        }
    }

    /// Gives room to as many as there is room for. Returns the numbers of their tickets.
    pub(super) fn admit(&mut self) -> Vec<u64> {
        while let Ok(freed) = self.freed.try_recv() {
            self.rank(freed);
        }
        let mut admitted = Vec::new();
        while let Some((turn, id)) = self.heads.first().copied() {
            let line = self.lines.get_mut(&id);
            let head = line.and_then(|line| Some((line.head_with_room(&self.peer)?, line)));
            let Some(((_, bytes), line)) = head else {
                self.heads.pop_first();
                continue;
            };
            if self.gauge.under_way.full(bytes, &self.node).is_some() {
                break;
            }
            line.waiting.remove(&turn);
            line.admitted.insert(turn, Permit::take(&line.gauge, &self.gauge, bytes));
            self.gauge.wait_no_more(1);
            admitted.push(turn.1);
            self.rank(id);
        }
        admitted
    }

    /// Removes a request that waits no more, or does not take its room. [`admit`](Self::admit) must follow if this
    /// returns `true`, because the turn passes on.
    pub(super) fn leave(&mut self, gauge: &Arc<Gauge>, turn: Turn) -> bool {
        self.remove_turn(turn, GaugeId::of(gauge))
    }

    /// Removes all requests of a direction of a peer, which has left.
    pub(super) fn remove(&mut self, gauge: &Arc<Gauge>) {
        let id = GaugeId::of(gauge);
        let line = self.lines.get(&id);
        let turns = line.into_iter().flat_map(|line| line.waiting.keys().chain(line.admitted.keys()));
        for turn in turns.copied().collect::<Vec<_>>() {
            self.remove_turn(turn, id);
        }
    }

    /// Removes the requests whose deadline has passed. A task that does not look any more so delays nobody for longer.
    /// [`admit`](Self::admit) must follow.
    pub(super) fn expire(&mut self, now: Instant) {
        let is_due = |((deadline, _), _): &(Turn, GaugeId)| *deadline <= now;
        while let Some((turn, id)) = self.turns.first().copied().filter(is_due) {
            self.remove_turn(turn, id);
        }
    }

    /// The first deadline of those in a line.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.turns.first().map(|((deadline, _), _)| *deadline)
    }

    /// The bound that a request waits for; `None` while it waits for a link.
    pub(super) fn waits_for(&self, gauge: &Arc<Gauge>, turn: Turn) -> Option<Full> {
        let bytes = self.lines.get(&GaugeId::of(gauge)).filter(|line| line.is_open)?.waiting.get(&turn)?;
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
                waiting: load.waiting + self.waiting_of(gauge),
            }
        })
    }

    /// The bound that is full for a request at its turn, because it holds up the first of its line, or of the node.
    fn full(&self, gauge: &Arc<Gauge>, turn: Turn, bytes: u64) -> Option<Full> {
        let line = self.lines.get(&GaugeId::of(gauge));
        let of_line = line.and_then(Line::head).filter(|(head, _)| *head < turn);
        let ahead = self.heads.iter().take_while(|(head, _)| *head < turn);
        let of_node = ahead.filter_map(|(_, id)| self.lines.get(id)?.head_with_room(&self.peer)).next();
        let bytes_of_line = of_line.map_or(bytes, |(_, bytes)| bytes);
        let bytes_of_node = of_node.map_or(bytes_of_line, |(_, bytes)| bytes);
        let full = gauge.full(bytes_of_line, &self.peer);
        let full = full.or_else(|| self.gauge.under_way.full(bytes_of_node, &self.node));
        // Room that has come this moment is for those ahead.
        let behind = if of_line.is_some() { Full::PeerTransfers } else { Full::Transfers };
        full.or((of_line.is_some() || of_node.is_some()).then_some(behind))
    }

    /// Requests that wait in the line of a gauge.
    fn waiting_of(&self, gauge: &Arc<Gauge>) -> usize {
        self.lines.get(&GaugeId::of(gauge)).map_or(0, |line| line.waiting.len())
    }

    /// Removes a request from its line; `false` when it is not there.
    fn remove_turn(&mut self, turn: Turn, id: GaugeId) -> bool {
        let Some(line) = self.lines.get_mut(&id) else { return false };
        let waited = line.waiting.remove(&turn).is_some();
        self.gauge.wait_no_more(usize::from(waited));
        line.admitted.remove(&turn);
        self.rank(id);
        self.turns.remove(&(turn, id))
    }

    /// Gives a line that has changed its place among the heads; forgets it when nobody is in it.
    fn rank(&mut self, id: GaugeId) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        line.head.take().into_iter().for_each(|head| _ = self.heads.remove(&(head, id)));
        line.head = line.head().filter(|_| line.is_open).map(|(turn, _)| turn);
        self.heads.extend(line.head.map(|head| (head, id)));
        if line.waiting.is_empty() && line.admitted.is_empty() {
            self.lines.remove(&id);
        }
    }
}

impl Line {
    fn new(gauge: &Arc<Gauge>) -> Self {
        let (waiting, admitted) = (BTreeMap::new(), BTreeMap::new());
        Self { gauge: Arc::clone(gauge), is_open: false, waiting, admitted, head: None }
    }

    /// The first turn, and its bytes.
    fn head(&self) -> Option<(Turn, u64)> {
        self.waiting.first_key_value().map(|(turn, bytes)| (*turn, *bytes))
    }

    /// The first turn, if the peer has room for it; otherwise the gauge is among those [`freed`](Admission::freed)
    /// once that may have changed.
    fn head_with_room(&self, bound: &Bound<Full>) -> Option<(Turn, u64)> {
        self.head().filter(|(_, bytes)| self.gauge.has_room_or_tells(*bytes, bound))
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
            Self::PeerWaiting => {
                "as many requests of it wait as NodeOptions::peer_waiting_max allows; see whether its process is \
                 stopped, send requests to other nodes, or raise the bound"
            }
        })
    }
}
