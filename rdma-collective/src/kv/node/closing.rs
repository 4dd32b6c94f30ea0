//! [`Closing`]: a node that ends, until nothing of it is left.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use rdma_core::Deadline;

use super::inner::Inner;
use super::parked::block_on;
use super::tickets::About;
use super::{NodeError, NodeName};

/// A node that is being closed. Returned by [`KvNode::closed`](super::KvNode::closed).
///
/// This is a future, which is ready when nothing of the node is left. Closing goes on when it is dropped.
#[must_use = "a node has ended when this was awaited or waited for"]
pub struct Closing {
    node: NodeName,
    begun: Instant,
    deadline: Deadline,
    /// The node and the ticket of who waits; nothing once it has ended.
    waiting: Option<Waiting>,
}

/// Somebody who waits for the end of a node; without a ticket in a forked child.
struct Waiting {
    inner: Arc<Inner>,
    ticket: Option<u64>,
}

impl Closing {
    /// Closes a node, unless it is that of another process.
    pub(super) fn new(inner: &Arc<Inner>, deadline: Deadline) -> Self {
        let own = (inner.own.name.clone(), inner.own.incarnation);
        let ticket = (!inner.engine.is_forked()).then(|| {
            let ticket = inner.change(|table| {
                table.close();
                table.tickets.add(own, About::Closing, deadline.instant())
            });
            inner.nudge.send();
            ticket
        });
        let waiting = Waiting { inner: Arc::clone(inner), ticket };
        Self { node: inner.own.name.clone(), begun: Instant::now(), deadline, waiting: Some(waiting) }
    }

    /// Waits until nothing of the node is left, or until the deadline of [`closed`](super::KvNode::closed).
    ///
    /// # Errors
    ///
    /// The errors of awaiting it, which [`closed`](super::KvNode::closed) lists.
    pub fn wait(self) -> Result<(), NodeError> {
        let deadline = self.deadline;
        block_on(self, deadline)
    }
}

impl Future for Closing {
    type Output = Result<(), NodeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(Waiting { inner, ticket }) = &self.waiting else { return Poll::Ready(Ok(())) };
        inner.engine.check_process()?;
        let (has_ended, replaced) = inner.change(|table| {
            let replaced = ticket.and_then(|ticket| table.tickets.sleep(ticket, context.waker()));
            (table.has_ended, replaced)
        });
        drop(replaced);
        if has_ended {
            self.waiting = None;
            return Poll::Ready(Ok(()));
        }
        if self.deadline.expired() {
            let (node, waited) = (self.node.clone(), self.begun.elapsed());
            return Poll::Ready(Err(NodeError::StillClosing { node, waited }));
        }
        Poll::Pending
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.filter(|_| !self.inner.engine.is_forked()) {
            let waker = self.inner.change(|table| table.tickets.remove(ticket));
            drop(waker);
        }
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closing")
            .field("node", &self.node)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
