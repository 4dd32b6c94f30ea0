//! Room for transfers: the table's side of [`Admission`](crate::kv::node::admission::Admission).

use std::sync::Arc;
use std::time::Instant;

use super::Table;
use crate::kv::gauge::{Gauge, Permit};
use crate::kv::node::NodeName;
use crate::kv::node::admission::{Full, Load, Turn};
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
    /// Takes room for a request whose link is up, unless the bound is full that this returns.
    pub(in crate::kv::node) fn take_room(
        &mut self,
        asks: Asks<'_>,
        ticket: Option<u64>,
    ) -> Result<Permit, Full> {
        // The caller has just seen the peer; without it there is no room.
        let gauge = self.gauge(asks).ok_or(Full::PeerTransfers)?;
        self.admission.open(&gauge, true);
        // Requests that have waited go first.
        self.admit();
        self.admission.take(&gauge, asks.turn(ticket), asks.bytes)
    }

    /// Has a request wait for room, which it takes at once if there is room now.
    pub(in crate::kv::node) fn wait_for_room(&mut self, asks: Asks<'_>, ticket: u64) -> Result<Permit, Full> {
        if let Some(gauge) = self.gauge(asks) {
            self.admission.wait(&gauge, asks.turn(Some(ticket)), asks.bytes);
        }
        self.take_room(asks, Some(ticket))
    }

    /// Has a request wait for a link, before it waits for room.
    pub(in crate::kv::node) fn wait_for_link(&mut self, asks: Asks<'_>, ticket: u64) {
        if let Some(gauge) = self.gauge(asks) {
            self.admission.wait(&gauge, asks.turn(Some(ticket)), asks.bytes);
            self.admission.open(&gauge, false);
            self.admit();
        }
    }

    /// Adds a request that waits, for a link or for room, and returns its ticket.
    pub(in crate::kv::node) fn add_request(
        &mut self,
        peer: (NodeName, u64),
        asks: Asks<'_>,
    ) -> Result<u64, Full> {
        if let Some(full) = self.gauge(asks).and_then(|gauge| self.admission.too_many_wait(&gauge)) {
            return Err(full);
        }
        Ok(self.tickets.add(peer, About::Link(asks.way), asks.deadline))
    }

    /// Has a request wait no more, or give back what it has not taken; its turn passes on.
    pub(in crate::kv::node) fn leave_room(&mut self, asks: Asks<'_>, ticket: u64) {
        let gauge = self.gauge(asks);
        if gauge.is_some_and(|gauge| self.admission.leave(&gauge, asks.turn(Some(ticket)))) {
            self.admit();
        }
    }

    /// The bound for which a request waits.
    pub(in crate::kv::node) fn waits_for(&self, asks: Asks<'_>, ticket: u64) -> Option<Full> {
        self.admission.waits_for(&self.gauge(asks)?, asks.turn(Some(ticket)))
    }

    fn gauge(&self, asks: Asks<'_>) -> Option<Arc<Gauge>> {
        Some(Arc::clone(self.peers.get(asks.peer)?.gauge(asks.way)))
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
