//! The links of a node: when one is made, wanted, granted, up, and over.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use rdma_core::Deadline;

use super::peer::{Meeting, Peer};
use super::{MAKE_WITHIN, Table};
use crate::kv::node::blob::NodeBlob;
use crate::kv::node::jobs::{Job, LinkName};
use crate::kv::node::link_slot::{End, LinkSlot, Way};
use crate::kv::node::message::{NOTE_BYTES, Note, Reason, Wish};
use crate::kv::node::tickets::About;
use crate::kv::node::{NodeError, NodeName};
use crate::link::RAILS_MAX;

/// Wishes of one peer that are granted at once, at most. A peer makes one link of each direction at a time. It may try
/// all of its rails before this node gives up on the first.
const GRANTS_MAX: u32 = 2 * RAILS_MAX as u32;

impl Table {
    /// Returns the link of a direction, if it is up; has nothing made.
    pub(in crate::kv::node) fn link(&mut self, name: &str, way: Way, now: Instant) -> Option<End> {
        let Self { peers, jobs, .. } = self;
        let (slot, _) = peers.get_mut(name)?.slot(way);
        jobs.retire(slot.clear(now));
        if let LinkSlot::Up(end) = slot { Some(end.clone()) } else { None }
    }

    /// Has the link made that a transfer needs, unless there [is one](Self::link), it is being made, or the nodes have
    /// not met. Returns the peer's name and incarnation, to wait for.
    pub(in crate::kv::node) fn need(
        &mut self,
        name: &str,
        way: Way,
        now: Instant,
    ) -> Result<(NodeName, u64), NodeError> {
        let Self { peers, jobs, words, own, is_closed, .. } = self;
        if *is_closed {
            return Err(NodeError::Closed);
        }
        let Some(peer) = peers.get_mut(name) else {
            return Err(NodeError::Unknown { peer: name.to_owned() });
        };
        let found = (peer.blob.name.clone(), peer.blob.incarnation);
        if !moves(own, &peer.blob, way) {
            return Err(NodeError::NothingToMove { own: own.name.clone(), peer: found.0 });
        }
        let (slot, last) = peer.slot(way);
        jobs.retire(slot.clear(now));
        if !matches!(slot, LinkSlot::Unmade) {
            return Ok(found);
        }
        let last = *last;
        match &peer.meeting {
            Meeting::Dialing(_) => {}
            Meeting::Met { dialed: Some(_), .. } => jobs.push(peer.make(way, now + MAKE_WITHIN, 0)),
            Meeting::Met { stream, dialed: None } => {
                let want = Note::Want { way: way.at_peer(), last };
                words.push((Arc::clone(stream), want.encode().to_vec()));
                let number = last.wrapping_add(1);
                *peer.slot(way).0 = LinkSlot::Making { number, until: now + MAKE_WITHIN };
            }
        }
        Ok(found)
    }

    /// Hears what a peer says over the connection. Returns `false` when that is nothing a node says.
    pub(in crate::kv::node) fn hear(
        &mut self,
        name: &NodeName,
        stream: &Arc<TcpStream>,
        said: &[u8],
        now: Instant,
    ) -> bool {
        let met_over = |peer: &&mut Peer| peer.stream().is_some_and(|known| Arc::ptr_eq(known, stream));
        let Some(peer) = self.peers.get_mut(name).filter(met_over) else { return true };
        peer.said.extend(said);
        let heard = std::mem::take(&mut peer.said);
        let (notes, rest) = heard.as_chunks::<NOTE_BYTES>();
        peer.said = rest.to_vec();
        notes.iter().all(|note| Note::decode(*note).is_some_and(|note| self.hear_note(name, note, now)))
    }

    fn hear_note(&mut self, name: &NodeName, note: Note, now: Instant) -> bool {
        let Self { peers, jobs, tickets, woken, own, .. } = self;
        let Some(peer) = peers.get_mut(name) else { return true };
        let (makes_links, incarnation) = (peer.makes_links(), peer.blob.incarnation);
        match note {
            Note::Want { way, last } if makes_links && moves(own, &peer.blob, way) => {
                let (slot, number) = peer.slot(way);
                jobs.retire(slot.clear(now));
                if last > *number {
                    return false;
                }
                // The peer has not heard of that link yet. One that is being made and fails is told of.
                if matches!(slot, LinkSlot::Making { .. })
                    || matches!(slot, LinkSlot::Up(_)) && *number > last
                {
                    return true;
                }
                slot.take().into_iter().for_each(|end| jobs.push(Job::EndWithPeer(end)));
                jobs.push(peer.make(way, now + MAKE_WITHIN, 0));
            }
            Note::Failed { way, number } if !makes_links => {
                let (slot, last) = peer.slot(way);
                // The number of a link that is wanted, and not heard of yet, may be any later one. A peer that was
                // still making the last one when it heard of the want makes no other.
                if !matches!(slot, LinkSlot::Up(_)) && number >= *last {
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
    pub(in crate::kv::node) fn hear_wish(&mut self, wish: &Wish, now: Instant) -> Result<(), Reason> {
        let Self { peers, jobs, own, .. } = self;
        if wish.to != own.incarnation {
            return Err(Reason::Gone);
        }
        let known = peers.get_mut(&wish.from).filter(|peer| peer.blob.incarnation == wish.incarnation);
        let peer = known.filter(|peer| peer.stream().is_some()).ok_or(Reason::Unknown)?;
        let way = wish.way.at_peer();
        if !moves(own, &peer.blob, way) {
            return Err(Reason::Unfit);
        }
        if peer.granting >= GRANTS_MAX {
            return Err(Reason::Failed);
        }
        let makes_links = peer.makes_links();
        let (slot, last) = peer.slot(way);
        if makes_links || wish.number <= *last {
            return Err(Reason::Unknown);
        }
        *last = wish.number;
        // The peer makes the next link once it has ended the one before.
        slot.take().into_iter().for_each(|end| jobs.push(Job::EndWithPeer(end)));
        *slot = LinkSlot::Making { number: wish.number, until: now + MAKE_WITHIN };
        peer.granting += 1;
        Ok(())
    }

    /// Notes that a wish of a peer is not being granted any more.
    pub(in crate::kv::node) fn granted(&mut self, wish: &Wish) {
        if let Some(peer) = self.peer_mut((&wish.from, wish.incarnation)) {
            peer.granting = peer.granting.saturating_sub(1);
        }
    }

    /// Has a link made again under the next number, and so on the next rail, because the peer may have heard of this
    /// one, and nobody knows. Returns `false` when the link is not wanted any more.
    pub(in crate::kv::node) fn make_again(
        &mut self,
        blob: &NodeBlob,
        LinkName { way, number }: LinkName,
        (deadline, tries): (Deadline, u32),
    ) -> bool {
        let Some(peer) = self.peer_mut((&blob.name, blob.incarnation)) else { return false };
        let is_wanted = peer.slot(way).0.makes(number);
        if is_wanted {
            let job = peer.make(way, deadline.instant(), tries);
            self.jobs.push(job);
        }
        is_wanted
    }

    /// Puts a link that was made into its slot, and has those look for whom there is room; returns the link when it is
    /// not wanted any more.
    pub(in crate::kv::node) fn link_up(
        &mut self,
        (name, incarnation): (&NodeName, u64),
        number: u32,
        end: End,
    ) -> Result<(), End> {
        let way = end.way();
        let Some(peer) = self.peer_mut((name, incarnation)) else { return Err(end) };
        let (slot, last) = peer.slot(way);
        // The slot may be empty: making took longer than those waited who needed the link.
        if *last != number || matches!(slot, LinkSlot::Up(_)) {
            return Err(end);
        }
        *slot = LinkSlot::Up(end);
        let gauge = Arc::clone(peer.gauge(way));
        self.admission.open(&gauge, true);
        self.admit();
        Ok(())
    }

    /// Notes that a link could not be made, for whoever waits for it, here or at the peer.
    pub(in crate::kv::node) fn link_failed(
        &mut self,
        (name, incarnation): (&NodeName, u64),
        LinkName { way, number }: LinkName,
        error: &NodeError,
    ) {
        let known = self.peers.get_mut(name).filter(|peer| peer.blob.incarnation == incarnation);
        let Some(peer) = known else { return };
        if let (true, Some(stream)) = (peer.makes_links(), peer.stream()) {
            let failed = Note::Failed { way: way.at_peer(), number };
            self.words.push((Arc::clone(stream), failed.encode().to_vec()));
        }
        let (slot, _) = peer.slot(way);
        if slot.makes(number) {
            *slot = LinkSlot::Unmade;
            self.tickets.fail((name, incarnation), Some(About::Link(way)), error, &mut self.woken);
        }
    }

    /// Has those who wait for a link that this node could not grant want the next one: the peer may not know that there
    /// is none, and that one is on another rail.
    pub(in crate::kv::node) fn want_again(
        &mut self,
        peer: (&NodeName, u64),
        LinkName { way, number }: LinkName,
    ) {
        let Some((slot, _)) = self.peer_mut(peer).map(|peer| peer.slot(way)) else { return };
        if slot.makes(number) {
            *slot = LinkSlot::Unmade;
            self.tickets.wake(peer.0, &mut self.woken);
        }
    }

    /// The address at which this node has met a peer.
    pub(in crate::kv::node) fn dialed_at(&self, peer: &NodeBlob) -> Option<SocketAddr> {
        match self.peer((&peer.name, peer.incarnation))?.meeting {
            Meeting::Met { dialed, .. } => dialed,
            Meeting::Dialing(_) => None,
        }
    }
}

/// Whether something can go between two nodes in this direction.
fn moves(own: &NodeBlob, theirs: &NodeBlob, way: Way) -> bool {
    match way {
        Way::Out => own.source.is_some() && theirs.destination.is_some(),
        Way::In => own.destination.is_some() && theirs.source.is_some(),
    }
}
