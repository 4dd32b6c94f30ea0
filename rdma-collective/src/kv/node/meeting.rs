//! Futures of what becomes of a peer: [`Connecting`], until it is met, and [`Leaving`], until it has left.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::inner::Inner;
use super::parked::block_on;
use super::tickets::About;
use super::{NodeError, NodeName};

/// A node that is being connected. Returned by [`KvNode::connect`](super::KvNode::connect).
///
/// This is a future, whose output is the peer's name. Connecting goes on when it is dropped.
#[must_use = "a peer is connected when this was awaited or waited for"]
pub struct Connecting {
    waiting: Result<Waiting, NodeError>,
    begun: Instant,
    deadline: Deadline,
}

/// A peer that has not left yet. Returned by [`KvNode::left`](super::KvNode::left).
///
/// This is a future, which is ready when the peer has left, or its process has ended.
#[must_use = "a peer has left when this was awaited"]
pub struct Leaving {
    /// Nothing for a peer that is not there.
    waiting: Option<Waiting>,
}

/// Somebody who waits for a change of a peer.
struct Waiting {
    inner: Arc<Inner>,
    peer: NodeName,
    incarnation: u64,
    ticket: u64,
}

impl Connecting {
    /// Waits for a peer by a ticket that the table has given out.
    pub(super) fn new(
        inner: &Arc<Inner>,
        peer: Result<(NodeName, u64, u64), NodeError>,
        deadline: Deadline,
    ) -> Self {
        let waiting = peer.map(|(peer, incarnation, ticket)| Waiting {
            inner: Arc::clone(inner),
            peer,
            incarnation,
            ticket,
        });
        Self { waiting, begun: Instant::now(), deadline }
    }

    /// Waits until the nodes have met, or until the deadline of [`connect`](super::KvNode::connect).
    ///
    /// # Errors
    ///
    /// The errors of awaiting it, which [`connect`](super::KvNode::connect) lists.
    pub fn wait(self) -> Result<NodeName, NodeError> {
        let deadline = self.deadline;
        block_on(self, deadline)
    }
}

impl Leaving {
    pub(super) fn new(inner: &Arc<Inner>, peer: &str) -> Self {
        // Longer than anybody waits.
        let until = Deadline::after(Duration::MAX).instant();
        let waiting = inner.change(|table| {
            let (peer, incarnation) = table.find(peer)?;
            let ticket = table.tickets.add((peer.clone(), incarnation), About::Leaving, until);
            Some(Waiting { inner: Arc::clone(inner), peer, incarnation, ticket })
        });
        Self { waiting }
    }

    /// Nobody is waited for.
    pub(super) fn of_nobody() -> Self {
        Self { waiting: None }
    }
}

impl Waiting {
    /// Whether the peer is met, or why not; `None` when it is not in the table. Keeps the waker in one step with the
    /// look, so that no change is missed.
    fn look(&self, waker: &Waker) -> (Option<bool>, Option<NodeError>) {
        let (met, error, replaced) = self.inner.change(|table| {
            let error = table.tickets.take_error(self.ticket);
            let replaced = table.tickets.sleep(self.ticket, waker);
            (table.has_met(&self.peer, self.incarnation), error, replaced)
        });
        drop(replaced);
        (met, error)
    }
}

impl Future for Connecting {
    type Output = Result<NodeName, NodeError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waiting = match &self.waiting {
            Ok(waiting) => waiting,
            Err(error) => return Poll::Ready(Err(error.clone())),
        };
        waiting.inner.engine.check_process()?;
        let peer = || waiting.peer.clone();
        match waiting.look(context.waker()) {
            (_, Some(error)) => Poll::Ready(Err(error)),
            (Some(true), None) => Poll::Ready(Ok(peer())),
            (None, None) => Poll::Ready(Err(NodeError::Left { peer: peer() })),
            (Some(false), None) if self.deadline.expired() => {
                Poll::Ready(Err(NodeError::Late { peer: peer(), waited: self.begun.elapsed() }))
            }
            (Some(false), None) => Poll::Pending,
        }
    }
}

impl Future for Leaving {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let own_process = self.waiting.as_ref().filter(|waiting| !waiting.inner.engine.is_forked());
        match own_process.map(|waiting| waiting.look(context.waker())) {
            Some((Some(_), None)) => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.inner.engine.is_forked() {
            let waker = self.inner.change(|table| table.tickets.remove(self.ticket));
            drop(waker);
        }
    }
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = self.waiting.as_ref().map(|waiting| &waiting.peer);
        f.debug_struct("Connecting").field("peer", &peer).finish_non_exhaustive()
    }
}

impl fmt::Debug for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = self.waiting.as_ref().map(|waiting| &waiting.peer);
        f.debug_struct("Leaving").field("peer", &peer).finish_non_exhaustive()
    }
}
