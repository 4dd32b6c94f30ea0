//! The tasks that wait at a node: for a peer to be met, for a link, and for a peer to leave.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Instant;

use super::link_slot::Way;
use super::{NodeError, NodeName};

/// The thing that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// The nodes meet.
    Meeting,
    /// There is a link in this direction.
    Link(Way),
    /// The peer leaves.
    Leaving,
    /// The node itself ends.
    Closing,
}

/// All who wait, by number.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    tickets: BTreeMap<u64, Ticket>,
    last: u64,
    /// The first deadline of those who have gone to sleep since the node's thread was told.
    unslept: Option<Instant>,
}

/// Somebody who waits.
#[derive(Debug)]
struct Ticket {
    peer: NodeName,
    incarnation: u64,
    about: About,
    deadline: Instant,
    waker: Option<Waker>,
    /// The reason why it is waited for in vain.
    error: Option<NodeError>,
}

impl Tickets {
    /// Adds somebody who waits, and returns the number.
    pub(super) fn add(
        &mut self,
        (peer, incarnation): (NodeName, u64),
        about: About,
        deadline: Instant,
    ) -> u64 {
        self.last += 1;
        let ticket = Ticket { peer, incarnation, about, deadline, waker: None, error: None };
        self.tickets.insert(self.last, ticket);
        self.last
    }

    /// Removes somebody who waits no more. Drop the waker only after all locks are released.
    #[must_use]
    pub(super) fn remove(&mut self, id: u64) -> Option<Waker> {
        self.tickets.remove(&id)?.waker
    }

    /// Takes the reason why it is waited for in vain, if there is one.
    pub(super) fn take_error(&mut self, id: u64) -> Option<NodeError> {
        self.tickets.get_mut(&id)?.error.take()
    }

    /// Keeps the waker of somebody who sleeps. Drop the waker that this one replaces only after all locks are released.
    #[must_use]
    pub(super) fn sleep(&mut self, id: u64, waker: &Waker) -> Option<Waker> {
        let ticket = self.tickets.get_mut(&id)?;
        let unslept = self.unslept.get_or_insert(ticket.deadline);
        *unslept = ticket.deadline.min(*unslept);
        ticket.waker.replace(waker.clone())
    }

    /// Whether somebody sleeps who is to be woken before `until`, since this was asked last.
    pub(super) fn must_wake_before(&mut self, until: Option<Instant>) -> bool {
        self.unslept.take().is_some_and(|unslept| until.is_none_or(|until| unslept < until))
    }

    /// Tells all who wait for this of a peer that it is in vain; without `about`, all who wait for anything of it.
    pub(super) fn fail(
        &mut self,
        (peer, incarnation): (&NodeName, u64),
        about: Option<About>,
        error: &NodeError,
        woken: &mut Vec<Waker>,
    ) {
        let of_this = |ticket: &&mut Ticket| {
            ticket.peer == *peer
                && ticket.incarnation == incarnation
                && about.is_none_or(|about| about == ticket.about)
        };
        for ticket in self.tickets.values_mut().filter(of_this) {
            ticket.error = Some(error.clone());
            woken.extend(ticket.waker.take());
        }
    }

    /// Has all who wait for anything of a peer look again.
    pub(super) fn wake(&mut self, peer: &NodeName, woken: &mut Vec<Waker>) {
        let of_peer = self.tickets.values_mut().filter(|ticket| ticket.peer == *peer);
        woken.extend(of_peer.filter_map(|ticket| ticket.waker.take()));
    }

    /// Has those look again whose deadline has passed, or all of them.
    pub(super) fn wake_due(&mut self, now: Option<Instant>, woken: &mut Vec<Waker>) {
        let due = |ticket: &&mut Ticket| now.is_none_or(|now| ticket.deadline <= now);
        woken.extend(self.tickets.values_mut().filter(due).filter_map(|ticket| ticket.waker.take()));
    }

    /// The first deadline of those who sleep.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.tickets.values().filter(|ticket| ticket.waker.is_some()).map(|ticket| ticket.deadline).min()
    }
}
