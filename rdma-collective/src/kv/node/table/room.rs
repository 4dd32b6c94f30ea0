//! Room for transfers: the table's side of [`Admission`](crate::kv::node::admission::Admission).

use std::time::Instant;

use super::Table;
use crate::kv::node::NodeName;
use crate::kv::node::admission::{Full, Load, Permit, Turn};
use crate::kv::node::link_slot::Way;
use crate::kv::node::tickets::About;

/// A request that needs room.
#[derive(Debug, Clone, Copy)]
pub(in crate::kv::node) struct Asks<'a> {
    pub(in crate::kv::node) peer: &'a str,
    pub(in crate::kv::node) way: Way,
    pub(in crate::kv::node) bytes: u64,
    pub(in crate::kv::node) deadline: Instant,
}

impl Asks<'_> {
    /// The turn of the request; without a ticket it comes behind all of its deadline.
    fn turn(&self, ticket: Option<u64>) -> Turn {
        (self.deadline, ticket.unwrap_or(u64::MAX))
    }
}

impl Table {
    /// Takes room for a request, unless the bound is full that this returns.
    pub(in crate::kv::node) fn take_room(
        &mut self,
        asks: Asks<'_>,
        ticket: Option<u64>,
    ) -> Result<Permit, Full> {
        // Before, because those who have waited go first.
        self.admit();
        let Self { peers, admission, .. } = self;
        // The caller has just seen the peer; without it there is no room.
        let peer = peers.get(asks.peer).ok_or(Full::PeerTransfers)?;
        admission.take(peer.gauge(asks.way), asks.turn(ticket), asks.bytes)
    }

    /// Has a request wait for room, which it takes at once if there is room now.
    pub(in crate::kv::node) fn wait_for_room(&mut self, asks: Asks<'_>, ticket: u64) -> Result<Permit, Full> {
        if let Some(peer) = self.peers.get(asks.peer) {
            self.admission.wait(peer.gauge(asks.way), asks.turn(Some(ticket)), asks.bytes);
        }
        self.take_room(asks, Some(ticket))
    }

    /// Adds a request that waits, for a link or for room, and returns its ticket.
    pub(in crate::kv::node) fn add_request(
        &mut self,
        peer: (NodeName, u64),
        asks: Asks<'_>,
    ) -> Result<u64, Full> {
        if self.tickets.requests() >= self.waiting_max {
            return Err(Full::Waiting);
        }
        Ok(self.tickets.add(peer, About::Link(asks.way), asks.deadline))
    }

    /// Has a request wait no more for room, or give back what it has not taken; its turn passes on.
    pub(in crate::kv::node) fn leave_room(&mut self, asks: Asks<'_>, ticket: u64) {
        let Self { peers, admission, .. } = self;
        let gauge = peers.get(asks.peer).map(|peer| peer.gauge(asks.way));
        if gauge.is_some_and(|gauge| admission.leave(gauge, asks.turn(Some(ticket)))) {
            self.admit();
        }
    }

    /// The bound for which a request waits.
    pub(in crate::kv::node) fn waits_for(&self, asks: Asks<'_>, ticket: u64) -> Option<Full> {
        let gauge = self.peers.get(asks.peer)?.gauge(asks.way);
        self.admission.waits_for(gauge, asks.turn(Some(ticket)))
    }

    /// Gives room to those who wait, and has them look.
    pub(super) fn admit(&mut self) {
        for ticket in self.admission.admit() {
            self.tickets.wake_one(ticket, &mut self.woken);
        }
    }

    pub(in crate::kv::node) fn load(&self) -> Load {
        self.admission.load()
    }

    pub(in crate::kv::node) fn load_of(&self, peer: &str) -> Option<Load> {
        Some(self.admission.load_of(&self.peers.get(peer)?.gauges))
    }
}
