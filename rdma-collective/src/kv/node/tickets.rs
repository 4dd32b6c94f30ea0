//! The tasks that wait at a node: for a peer to be met, for a link, and for a peer to leave.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;
use std::time::Instant;

use super::link_slot::Way;
use super::{NodeError, NodeName};

/// The thing that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// The nodes meet.
    Meeting,
    /// There is a link in this direction, and room on it for a request.
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
    /// The tickets of each peer, by its name.
    of_peer: BTreeMap<NodeName, BTreeSet<u64>>,
    last: u64,
    /// Sleepers, by deadline: there may be many, and the node's thread looks for the first often.
    asleep: BTreeSet<(Instant, u64)>,
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
        self.of_peer.entry(peer.clone()).or_default().insert(self.last);
        let ticket = Ticket { peer, incarnation, about, deadline, waker: None, error: None };
        self.tickets.insert(self.last, ticket);
        self.last
    }

    /// Removes somebody who waits no more. Drop the waker only after all locks are released.
    #[must_use]
    pub(super) fn remove(&mut self, id: u64) -> Option<Waker> {
        let ticket = self.tickets.remove(&id)?;
        if let Some(others) = self.of_peer.get_mut(&ticket.peer) {
            others.remove(&id);
            if others.is_empty() {
                self.of_peer.remove(&ticket.peer);
            }
        }
        self.asleep.remove(&(ticket.deadline, id));
        ticket.waker
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
        self.asleep.insert((ticket.deadline, id));
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
        for id in self.of_peer.get(peer).into_iter().flatten() {
            let Some(ticket) = self.tickets.get_mut(id) else { continue };
            if ticket.incarnation == incarnation && about.is_none_or(|about| about == ticket.about) {
                ticket.error = Some(error.clone());
                self.asleep.remove(&(ticket.deadline, *id));
                woken.extend(ticket.waker.take());
            }
        }
    }

    /// Has all who wait for anything of a peer look again.
    pub(super) fn wake(&mut self, peer: &NodeName, woken: &mut Vec<Waker>) {
        for id in self.of_peer.get(peer).into_iter().flatten().copied().collect::<Vec<_>>() {
            self.wake_one(id, woken);
        }
    }

    /// Has one look again who waits.
    pub(super) fn wake_one(&mut self, id: u64, woken: &mut Vec<Waker>) {
        let Some(ticket) = self.tickets.get_mut(&id) else { return };
        self.asleep.remove(&(ticket.deadline, id));
        woken.extend(ticket.waker.take());
    }

    /// Has those look again whose deadline has passed, or all of them.
    pub(super) fn wake_due(&mut self, now: Option<Instant>, woken: &mut Vec<Waker>) {
        let is_due = |(deadline, _): &(Instant, u64)| now.is_none_or(|now| *deadline <= now);
        while let Some(next) = self.asleep.first().copied().filter(is_due) {
            self.asleep.remove(&next);
            self.wake_one(next.1, woken);
        }
    }

    /// The first deadline of those who sleep.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.asleep.first().map(|(deadline, _)| *deadline)
    }
}
