//! The table of a node: its peers, the links to them, and who waits for which. It decides, and does no I/O.
//!
//! A peer is `Dialing` until one of both has introduced itself to the other, and `Met` as long as the connection of
//! that introduction lasts. When both introduce themselves at once, the node of the smaller name goes first.
//!
//! Each direction of a peer has a slot for its link: `Unmade` → `Making` → `Up`, and `Unmade` again when the link has
//! ended. The node that has introduced itself makes all links of the two, because it has shown that it reaches the
//! other; the other one tells it what it wants. Links are numbered, so that a want which crosses the making of the link
//! makes no second one.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::blob::NodeBlob;
use super::link_slot::{End, LinkSlot, Way};
use super::message::{NOTE_BYTES, Note, Reason, Wish};
use super::tickets::{About, Tickets};
use super::{NodeError, NodeName};
use crate::kv::plan::Route;
use crate::link::handshake::Met;

/// The time that making a link may take. A peer that is reached needs some milliseconds.
pub(super) const MAKE_WITHIN: Duration = Duration::from_secs(5);

/// The peers of a node.
pub(super) struct Table {
    own: NodeBlob,
    peers_max: usize,
    peers: BTreeMap<NodeName, Peer>,
    pub(super) tickets: Tickets,
    /// Work for threads that may block.
    pub(super) jobs: VecDeque<Job>,
    /// Tasks to be woken once the table is released.
    pub(super) woken: Vec<Waker>,
    /// Notes to be sent once the table is released.
    pub(super) notes: Vec<(Arc<TcpStream>, Note)>,
    pub(super) is_closed: bool,
}

/// A peer of the node.
pub(super) struct Peer {
    pub(super) blob: Arc<NodeBlob>,
    meeting: Meeting,
    /// The link out of this node, and the link into it; and the number of the last one of each that was begun.
    out: (LinkSlot, u32),
    into: (LinkSlot, u32),
    /// The bytes of a note that has not arrived in full.
    said: Vec<u8>,
}

/// How far two nodes have met.
enum Meeting {
    /// This node introduces itself.
    Dialing,
    /// Either has introduced itself. The connection ends when the peer leaves, or its process ends.
    Met { stream: Arc<TcpStream>, dialed: bool },
}

/// Work for a thread that may block.
pub(super) enum Job {
    /// Introduces this node to a peer.
    Introduce { peer: Arc<NodeBlob>, deadline: Deadline },
    /// Makes the link of that number to a peer.
    Make { peer: Arc<NodeBlob>, way: Way, number: u32, deadline: Deadline },
    /// Answers a peer's wish for a link.
    Grant(Box<(Met, Wish)>),
    /// Ends a link that the table has let go of.
    Retire(End),
    /// Drops an end that nobody has any more.
    Drop(Box<dyn Send>),
}

/// The state of the link that a transfer needs.
pub(super) enum Need {
    Up(End),
    /// The link is being made, or the nodes have not met.
    Wait {
        peer: NodeName,
        incarnation: u64,
    },
}

impl Table {
    pub(super) fn new(own: NodeBlob, peers_max: usize) -> Self {
        Self {
            own,
            peers_max,
            peers: BTreeMap::new(),
            tickets: Tickets::default(),
            jobs: VecDeque::new(),
            woken: Vec::new(),
            notes: Vec::new(),
            is_closed: false,
        }
    }

    /// The peers that this node has met, with the connection to each.
    pub(super) fn met(&self) -> impl Iterator<Item = (&Peer, &Arc<TcpStream>)> {
        self.peers.values().filter_map(|peer| match &peer.meeting {
            Meeting::Met { stream, .. } => Some((peer, stream)),
            Meeting::Dialing => None,
        })
    }

    /// Whether this node has met that process of a peer. `None` when the peer is not in the table any more.
    pub(super) fn has_met(&self, name: &NodeName, incarnation: u64) -> Option<bool> {
        let peer = self.peers.get(name).filter(|peer| peer.blob.incarnation == incarnation)?;
        Some(matches!(peer.meeting, Meeting::Met { .. }))
    }

    /// The name and the incarnation of a peer.
    pub(super) fn find(&self, name: &str) -> Option<(NodeName, u64)> {
        self.peers.get(name).map(|peer| (peer.blob.name.clone(), peer.blob.incarnation))
    }

    /// Begins to connect to the node of a blob, unless that is done or under way.
    pub(super) fn connect(&mut self, blob: NodeBlob, deadline: Deadline) -> Result<(), NodeError> {
        if self.is_closed {
            return Err(NodeError::Closed);
        }
        if blob.name == self.own.name {
            return Err(NodeError::OwnName { peer: blob.name });
        }
        self.check_pools(&blob)?;
        match self.peers.get(&blob.name) {
            Some(peer) if peer.blob.incarnation == blob.incarnation => return Ok(()),
            Some(peer) if peer.is_alive() => return Err(NodeError::NameTaken { name: blob.name }),
            Some(_) => self.remove(&blob.name.clone()),
            None if self.peers.len() >= self.peers_max => {
                return Err(NodeError::Full { node: self.own.name.clone(), max: self.peers_max });
            }
            None => {}
        }
        let peer = Arc::new(blob);
        self.jobs.push_back(Job::Introduce { peer: Arc::clone(&peer), deadline });
        self.peers.insert(peer.name.clone(), Peer::new(peer, Meeting::Dialing));
        Ok(())
    }

    /// Fails unless something can go to that node, or come from it.
    fn check_pools(&self, theirs: &NodeBlob) -> Result<(), NodeError> {
        let own = &self.own;
        if own.soft != theirs.soft {
            return Err(NodeError::OtherDevice { peer: theirs.name.clone() });
        }
        let unfit = |source| NodeError::Layout { peer: theirs.name.clone(), source };
        let mut moves = false;
        if let (Some((_, from)), Some(to)) = (&own.source, &theirs.destination) {
            Route::new(from, to).map_err(unfit)?;
            moves = true;
        }
        if let (Some((_, from)), Some(to)) = (&theirs.source, &own.destination) {
            Route::new(from, to).map_err(|error| unfit(error.seen_by_the_other_end()))?;
            moves = true;
        }
        let nothing = || NodeError::NothingToMove { own: own.name.clone(), peer: theirs.name.clone() };
        if moves { Ok(()) } else { Err(nothing()) }
    }

    /// Decides on a node that introduces itself; it has met this one once [`meet`](Self::meet) has its connection.
    pub(super) fn hear_introduction(&mut self, to: u64, from: &NodeBlob) -> Result<(), Reason> {
        if to != self.own.incarnation {
            return Err(Reason::Gone);
        }
        if from.name == self.own.name {
            return Err(Reason::NameTaken);
        }
        self.check_pools(from).map_err(|_| Reason::Unfit)?;
        match self.peers.get(&from.name) {
            Some(peer) if peer.blob.incarnation == from.incarnation => match peer.meeting {
                Meeting::Dialing if self.own.name < from.name => Err(Reason::Crossed),
                // An introduction of before the two met; or of after, when this side has not noticed the end yet.
                Meeting::Met { .. } if peer.is_alive() => Err(Reason::Crossed),
                Meeting::Dialing | Meeting::Met { .. } => Ok(()),
            },
            Some(peer) if peer.is_alive() => Err(Reason::NameTaken),
            Some(_) => Ok(()),
            None if self.peers.len() >= self.peers_max => Err(Reason::Full),
            None => Ok(()),
        }
    }

    /// Notes that a node was met, over this connection, which one of both has dialed. Returns `false` when nothing came
    /// of it meanwhile.
    pub(super) fn meet(&mut self, blob: NodeBlob, stream: TcpStream, dialed: bool) -> bool {
        if self.is_closed || self.hear_introduction(self.own.incarnation, &blob) == Err(Reason::NameTaken) {
            return false;
        }
        let name = blob.name.clone();
        let meeting = Meeting::Met { stream: Arc::new(stream), dialed };
        let known = self.peers.get(&name);
        if known.is_none_or(|peer| peer.blob.incarnation != blob.incarnation || peer.is_met()) {
            // The links of an earlier meeting are numbered anew.
            self.remove(&name);
        }
        match self.peers.get_mut(&name) {
            Some(peer) => peer.meeting = meeting,
            None => _ = self.peers.insert(name.clone(), Peer::new(Arc::new(blob), meeting)),
        }
        crate::log::info!(node = %self.own.name, peer = %name, "two KV nodes have met");
        self.tickets.wake(&name, &mut self.woken);
        true
    }

    /// Notes that a node was not met, for whoever waits for that.
    pub(super) fn fail_meeting(&mut self, name: &NodeName, incarnation: u64, error: &NodeError) {
        if self.has_met(name, incarnation) == Some(false) {
            self.peers.remove(name);
            self.tickets.fail((name, incarnation), None, error, &mut self.woken);
        }
    }

    /// Returns the link that a transfer needs, and has it made if there is none.
    pub(super) fn need(&mut self, name: &str, way: Way, now: Instant) -> Result<Need, NodeError> {
        let Self { peers, jobs, notes, own, is_closed, .. } = self;
        if *is_closed {
            return Err(NodeError::Closed);
        }
        let Some(peer) = peers.get_mut(name) else {
            return Err(NodeError::Unknown { peer: name.to_owned() });
        };
        let theirs = &peer.blob;
        let (has_own, has_theirs) = match way {
            Way::Out => (own.source.is_some(), theirs.destination.is_some()),
            Way::In => (own.destination.is_some(), theirs.source.is_some()),
        };
        if !has_own || !has_theirs {
            return Err(NodeError::NothingToMove { own: own.name.clone(), peer: theirs.name.clone() });
        }
        let found = (theirs.name.clone(), theirs.incarnation);
        let (slot, last) = peer.slot(way);
        jobs.extend(slot.clear(now).map(Job::Retire));
        match slot {
            LinkSlot::Up(end) => return Ok(Need::Up(end.clone())),
            LinkSlot::Making { .. } => {}
            LinkSlot::Unmade => {
                let last = *last;
                match &peer.meeting {
                    Meeting::Dialing => {}
                    Meeting::Met { dialed: true, .. } => jobs.push_back(peer.make(way, now)),
                    Meeting::Met { stream, dialed: false } => {
                        notes.push((Arc::clone(stream), Note::Want { way: way.at_peer(), last }));
                        *peer.slot(way).0 = LinkSlot::Making { until: now + MAKE_WITHIN };
                    }
                }
            }
        }
        Ok(Need::Wait { peer: found.0, incarnation: found.1 })
    }

    /// Hears what a peer says over the connection. Returns `false` when that is nothing a node says.
    pub(super) fn hear(&mut self, (name, incarnation): (&NodeName, u64), said: &[u8], now: Instant) -> bool {
        let known = self.peers.get_mut(name).filter(|peer| peer.blob.incarnation == incarnation);
        let Some(peer) = known else { return true };
        peer.said.extend(said);
        let heard = std::mem::take(&mut peer.said);
        let (notes, rest) = heard.as_chunks::<NOTE_BYTES>();
        peer.said = rest.to_vec();
        notes.iter().all(|note| {
            Note::decode(*note).is_some_and(|note| self.hear_note((name, incarnation), note, now))
        })
    }

    fn hear_note(&mut self, (name, incarnation): (&NodeName, u64), note: Note, now: Instant) -> bool {
        let Self { peers, jobs, tickets, woken, .. } = self;
        let Some(peer) = peers.get_mut(name) else { return true };
        let dialed = matches!(peer.meeting, Meeting::Met { dialed: true, .. });
        match note {
            Note::Want { way, last } if dialed => {
                let (slot, number) = peer.slot(way);
                jobs.extend(slot.clear(now).map(Job::Retire));
                // The peer has not heard of the link yet that is being made, or is there.
                if *number > last && !matches!(slot, LinkSlot::Unmade) {
                    return true;
                }
                jobs.extend(slot.take().map(Job::Retire));
                jobs.push_back(peer.make(way, now));
            }
            Note::Failed { way } if !dialed => {
                let (slot, _) = peer.slot(way);
                if matches!(slot, LinkSlot::Making { .. }) {
                    *slot = LinkSlot::Unmade;
                    let error = NodeError::LinkUnmade { peer: name.clone() };
                    tickets.fail((name, incarnation), Some(About::Link(way)), &error, woken);
                }
            }
            Note::Want { .. } | Note::Failed { .. } => return false,
        }
        true
    }

    /// Decides on the wish of a peer, whose end of the link this node then makes.
    pub(super) fn hear_wish(&mut self, wish: &Wish, now: Instant) -> Result<(), Reason> {
        let Self { peers, jobs, own, .. } = self;
        if wish.to != own.incarnation {
            return Err(Reason::Gone);
        }
        let known = peers.get_mut(&wish.from).filter(|peer| peer.blob.incarnation == wish.incarnation);
        let peer = known.ok_or(Reason::Unknown)?;
        let way = wish.way.at_peer();
        let has_pool = match way {
            Way::Out => own.source.is_some(),
            Way::In => own.destination.is_some(),
        };
        if !has_pool {
            return Err(Reason::Unfit);
        }
        let dialed = matches!(peer.meeting, Meeting::Met { dialed: true, .. });
        let (slot, last) = peer.slot(way);
        if dialed || wish.number <= *last {
            return Err(Reason::Unknown);
        }
        *last = wish.number;
        jobs.extend(slot.take().map(Job::Retire));
        *slot = LinkSlot::Making { until: now + MAKE_WITHIN };
        Ok(())
    }

    /// Puts a link that was made into its slot; returns it when the peer has gone meanwhile.
    pub(super) fn link_up(&mut self, (name, incarnation): (&NodeName, u64), end: End) -> Result<(), End> {
        let Self { peers, tickets, woken, jobs, is_closed, .. } = self;
        let known = peers.get_mut(name).filter(|peer| peer.blob.incarnation == incarnation && !*is_closed);
        let Some(peer) = known else { return Err(end) };
        let (slot, _) = peer.slot(end.way());
        jobs.extend(slot.take().map(Job::Retire));
        *slot = LinkSlot::Up(end);
        tickets.wake(name, woken);
        Ok(())
    }

    /// Notes that a link could not be made, for whoever waits for it, here or at the peer.
    pub(super) fn link_failed(&mut self, (name, incarnation): (&NodeName, u64), way: Way, error: &NodeError) {
        let known = self.peers.get_mut(name).filter(|peer| peer.blob.incarnation == incarnation);
        let Some(peer) = known else { return };
        if let Meeting::Met { stream, dialed: true } = &peer.meeting {
            self.notes.push((Arc::clone(stream), Note::Failed { way: way.at_peer() }));
        }
        let (slot, _) = peer.slot(way);
        if matches!(slot, LinkSlot::Making { .. }) {
            *slot = LinkSlot::Unmade;
            self.tickets.fail((name, incarnation), Some(About::Link(way)), error, &mut self.woken);
        }
    }

    /// Forgets a peer that has left, or whose process has ended; its links are ended.
    pub(super) fn forget(&mut self, (name, incarnation): (&NodeName, u64)) {
        if self.peers.get(name).is_some_and(|peer| peer.blob.incarnation == incarnation) {
            crate::log::info!(node = %self.own.name, peer = %name, "a KV node has left");
            self.remove(name);
        }
    }

    /// Forgets all peers, and takes no more.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        for name in self.peers.keys().cloned().collect::<Vec<_>>() {
            self.remove(&name);
        }
        self.tickets.wake_due(None, &mut self.woken);
    }

    fn remove(&mut self, name: &NodeName) {
        if let Some(mut peer) = self.peers.remove(name) {
            if let Meeting::Met { stream, .. } = &peer.meeting {
                // The node's thread has it, too, so dropping it would not close it at once.
                _ = stream.shutdown(Shutdown::Both);
            }
            self.jobs.extend(peer.out.0.take().into_iter().chain(peer.into.0.take()).map(Job::Retire));
            let error = NodeError::Left { peer: name.clone() };
            self.tickets.fail((name, peer.blob.incarnation), None, &error, &mut self.woken);
        }
    }
}

impl Peer {
    fn new(blob: Arc<NodeBlob>, meeting: Meeting) -> Self {
        let unmade = || (LinkSlot::default(), 0);
        Self { blob, meeting, out: unmade(), into: unmade(), said: Vec::new() }
    }

    /// The slot of a direction, and the number of its last link.
    fn slot(&mut self, way: Way) -> (&mut LinkSlot, &mut u32) {
        let (slot, number) = match way {
            Way::Out => &mut self.out,
            Way::In => &mut self.into,
        };
        (slot, number)
    }

    /// Begins to make a link.
    fn make(&mut self, way: Way, now: Instant) -> Job {
        let peer = Arc::clone(&self.blob);
        let until = now + MAKE_WITHIN;
        let (slot, number) = self.slot(way);
        *slot = LinkSlot::Making { until };
        *number = number.wrapping_add(1);
        Job::Make { peer, way, number: *number, deadline: Deadline::at(until) }
    }

    fn is_met(&self) -> bool {
        matches!(self.meeting, Meeting::Met { .. })
    }

    /// Whether the peer is met, and neither has left nor ended since.
    fn is_alive(&self) -> bool {
        match &self.meeting {
            Meeting::Met { stream, .. } => is_open(stream) && !self.blob.process.ends_within(Duration::ZERO),
            // Not even met: whoever comes under the name goes first.
            Meeting::Dialing => false,
        }
    }
}

/// Whether the peer has not closed a connection.
fn is_open(stream: &TcpStream) -> bool {
    let peeked = recv(stream, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    !matches!(peeked, Ok((0, _)))
        && !matches!(peeked, Err(error) if error != Errno::AGAIN && error != Errno::INTR)
}

#[cfg(test)]
mod tests;
