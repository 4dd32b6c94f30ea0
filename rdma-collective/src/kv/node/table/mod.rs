//! The table of a node: its peers, the links to them, and who waits for which. It decides, and does no I/O.
//!
//! A peer is `Dialing` until one of both has introduced itself to the other, and `Met` as long as the connection of
//! that introduction lasts. While both introduce themselves at once, the node of the smaller name goes first.
//!
//! Each direction of a peer has a slot for its link: `Unmade` → `Making` → `Up`, and `Unmade` again when the link has
//! ended. The node that has introduced itself makes all links of the two, because it has shown that it reaches the
//! other; the other one tells it what it wants. Links are numbered, so that a want which crosses the making of the link
//! makes no second one, and the end of one link says nothing about the next.

mod links;
mod peer;
mod room;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use self::peer::{Dialing, Meeting};
use super::admission::Admission;
use super::blob::NodeBlob;
use super::jobs::{Job, Jobs};
use super::message::{Answer, Reason};
use super::tickets::{About, Tickets};
use super::{NodeError, NodeName, NodeOptions};
use crate::engine::Nudge;
use crate::kv::plan::Route;

pub(super) use peer::{Peer, is_open};
pub(super) use room::Asks;

/// The time that making a link may take. A peer that is reached needs some milliseconds.
pub(super) const MAKE_WITHIN: Duration = Duration::from_secs(5);

/// The peers of a node.
pub(super) struct Table {
    own: NodeBlob,
    peers_max: usize,
    peers: BTreeMap<NodeName, Peer>,
    admission: Admission,
    pub(super) tickets: Tickets,
    pub(super) jobs: Jobs,
    /// Tasks to be woken once the table is released.
    pub(super) woken: Vec<Waker>,
    /// Words to peers, in order. They are sent before the table is released, because those of the next change come
    /// behind them.
    pub(super) words: Vec<(Arc<TcpStream>, Vec<u8>)>,
    pub(super) is_closed: bool,
    /// Held by each thread that has the end of a link, so that a node which is closed waits for them.
    pub(super) lent: Arc<()>,
    /// Whether the node was closed, and nothing of it is left.
    pub(super) has_ended: bool,
}

impl Table {
    pub(super) fn new(own: NodeBlob, options: &NodeOptions, nudge: &Arc<Nudge>) -> Self {
        Self {
            own,
            peers_max: options.peers_max,
            peers: BTreeMap::new(),
            admission: Admission::new(options, nudge),
            tickets: Tickets::default(),
            jobs: Jobs::default(),
            woken: Vec::new(),
            words: Vec::new(),
            is_closed: false,
            lent: Arc::default(),
            has_ended: false,
        }
    }

    /// The peers that this node has met, with the connection to each.
    pub(super) fn met(&self) -> impl Iterator<Item = (&Peer, &Arc<TcpStream>)> {
        self.peers.values().filter_map(|peer| peer.stream().map(|stream| (peer, stream)))
    }

    /// The peer of that name and incarnation; `None` when the peer is gone, or another process has the name.
    fn peer(&self, (name, incarnation): (&NodeName, u64)) -> Option<&Peer> {
        self.peers.get(name).filter(|peer| peer.blob.incarnation == incarnation)
    }

    /// [`peer`](Self::peer), to change it.
    fn peer_mut(&mut self, (name, incarnation): (&NodeName, u64)) -> Option<&mut Peer> {
        self.peers.get_mut(name).filter(|peer| peer.blob.incarnation == incarnation)
    }

    /// Whether this node has met that process of a peer. `None` when the peer is not in the table any more.
    pub(super) fn has_met(&self, name: &NodeName, incarnation: u64) -> Option<bool> {
        Some(self.peer((name, incarnation))?.stream().is_some())
    }

    /// The name and the incarnation of a peer.
    pub(super) fn find(&self, name: &str) -> Option<(NodeName, u64)> {
        self.peers.get(name).map(|peer| (peer.blob.name.clone(), peer.blob.incarnation))
    }

    /// Begins to connect to the node of a blob, unless that is done or under way; returns the ticket of who waits.
    pub(super) fn connect(&mut self, blob: NodeBlob, deadline: Deadline) -> Result<u64, NodeError> {
        if self.is_closed {
            return Err(NodeError::Closed);
        }
        if blob.name == self.own.name {
            return Err(NodeError::OwnName { peer: blob.name });
        }
        self.check_pools(&blob)?;
        let is_full = self.peers.len() >= self.peers_max;
        let ticket = ((blob.name.clone(), blob.incarnation), About::Meeting, deadline.instant());
        match self.peers.get_mut(&blob.name) {
            Some(peer) if peer.blob.incarnation == blob.incarnation => {
                peer.dial_until(deadline);
                return Ok(self.tickets.add(ticket.0, ticket.1, ticket.2));
            }
            Some(peer) if peer.is_alive() => return Err(NodeError::NameTaken { name: blob.name }),
            Some(_) => self.remove_left(&blob.name.clone()),
            None if is_full => {
                return Err(NodeError::Full { node: self.own.name.clone(), max: self.peers_max });
            }
            None => {}
        }
        let peer = Arc::new(blob);
        self.jobs.push(Job::Introduce { peer: Arc::clone(&peer), tries: 0 });
        self.peers.insert(peer.name.clone(), Peer::new(peer, Meeting::Dialing(Dialing::until(deadline))));
        Ok(self.tickets.add(ticket.0, ticket.1, ticket.2))
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

    /// The deadline of dialing a peer; `None` when it is not to be dialed any more.
    pub(super) fn dialing(&self, peer: &NodeBlob) -> Option<Deadline> {
        self.peer((&peer.name, peer.incarnation))?.dialing().map(|dialing| dialing.until)
    }

    /// Notes that this node is about to introduce itself, and waits for the answer; returns whether it still is to.
    pub(super) fn asks(&mut self, peer: &NodeBlob, asks: bool) -> bool {
        let dialing = self.peer_mut((&peer.name, peer.incarnation)).and_then(Peer::dialing_mut);
        dialing.is_some_and(|dialing| {
            dialing.asks = asks;
            true
        })
    }

    /// Checks a node that introduces itself.
    fn check_introduction(&self, to: u64, from: &NodeBlob) -> Result<(), Reason> {
        if self.is_closed || to != self.own.incarnation {
            return Err(Reason::Gone);
        }
        if from.name == self.own.name {
            return Err(Reason::NameTaken);
        }
        self.check_pools(from).map_err(|_| Reason::Unfit)?;
        match self.peers.get(&from.name) {
            Some(peer) if peer.blob.incarnation == from.incarnation => match peer.dialing() {
                Some(dialing) if dialing.asks && self.own.name < from.name => Err(Reason::Crossed),
                // An introduction of before the two met; or of after, when this side has not noticed the end yet.
                None if peer.is_alive() => Err(Reason::Crossed),
                _ => Ok(()),
            },
            Some(peer) if peer.is_alive() => Err(Reason::NameTaken),
            Some(_) => Ok(()),
            None if self.peers.len() >= self.peers_max => Err(Reason::Full),
            None => Ok(()),
        }
    }

    /// Meets a node that has introduced itself over this connection, or says why not.
    pub(super) fn introduced(
        &mut self,
        to: u64,
        from: NodeBlob,
        stream: Arc<TcpStream>,
    ) -> Result<(), Reason> {
        self.check_introduction(to, &from)?;
        // The answer is the first word on the connection, before any note.
        let welcome = Answer::Welcome(Vec::new()).encode().map_err(|_| Reason::Failed)?;
        self.words.push((Arc::clone(&stream), welcome));
        self.meet(from, stream, None);
        Ok(())
    }

    /// Meets a node that this one has introduced itself to. Returns `false` when that is not wanted any more, or the
    /// peer was faster.
    pub(super) fn welcomed(&mut self, peer: &NodeBlob, stream: Arc<TcpStream>, at: SocketAddr) -> bool {
        let is_wanted = self.dialing(peer).is_some();
        if is_wanted {
            self.meet(peer.clone(), stream, Some(at));
        }
        is_wanted
    }

    fn meet(&mut self, blob: NodeBlob, stream: Arc<TcpStream>, dialed: Option<SocketAddr>) {
        let (name, meeting) = (blob.name.clone(), Meeting::Met { stream, dialed });
        let known = self.peers.get(&name);
        if known.is_some_and(|peer| peer.blob.incarnation != blob.incarnation || peer.stream().is_some()) {
            // Another process has the name now; or the links of an earlier meeting are over.
            self.remove_left(&name);
        }
        match self.peers.get_mut(&name) {
            Some(peer) => peer.meeting = meeting,
            None => _ = self.peers.insert(name.clone(), Peer::new(Arc::new(blob), meeting)),
        }
        crate::log::info!(node = %self.own.name, peer = %name, "two KV nodes have met");
        self.tickets.wake(&name, &mut self.woken);
    }

    /// Notes that a node was not met, for whoever waits for that.
    pub(super) fn fail_meeting(&mut self, peer: &NodeBlob, error: &NodeError) {
        if self.dialing(peer).is_some() {
            self.remove(&peer.name, error);
        }
    }

    /// Forgets a peer that has left, or whose process has ended; its links are ended. Only if the connection is `lost`
    /// over which the two have met: they may have met again.
    pub(super) fn forget(&mut self, peer: (&NodeName, u64), lost: Option<&Arc<TcpStream>>) {
        let is_this = |peer: &Peer| match lost {
            Some(lost) => peer.stream().is_some_and(|stream| Arc::ptr_eq(stream, lost)),
            None => true,
        };
        if self.peer(peer).is_some_and(is_this) {
            crate::log::info!(node = %self.own.name, peer = %peer.0, "a KV node has left");
            self.remove_left(peer.0);
        }
    }

    /// Forgets all peers, and takes no more.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        // Nobody waits for what is begun now.
        drop(self.jobs.take_awaited());
        for name in self.peers.keys().cloned().collect::<Vec<_>>() {
            self.remove(&name, &NodeError::Closed);
        }
        self.tickets.wake_due(None, &mut self.woken);
    }

    /// Has those look again whose deadline has passed, or who have room now.
    pub(super) fn wake_due(&mut self, now: Instant) {
        self.admission.expire(now);
        self.admit();
        self.tickets.wake_due(Some(now), &mut self.woken);
    }

    /// The first deadline of those who wait.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.tickets.next_deadline().into_iter().chain(self.admission.next_deadline()).min()
    }

    /// Removes a peer, which has left.
    fn remove_left(&mut self, name: &NodeName) {
        self.remove(name, &NodeError::Left { peer: name.clone() });
    }

    /// Removes a peer: its links end, and whoever waits for anything of it gets the error, and no room.
    fn remove(&mut self, name: &NodeName, error: &NodeError) {
        if let Some(mut peer) = self.peers.remove(name) {
            self.jobs.retire(peer.end());
            peer.gauges.iter().for_each(|gauge| self.admission.remove(gauge));
            // The room of those who had not taken it yet.
            self.admit();
            self.tickets.fail((name, peer.blob.incarnation), None, error, &mut self.woken);
        }
    }
}
