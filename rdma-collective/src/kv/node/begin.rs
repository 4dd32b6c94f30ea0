//! [`Begin`]: a transfer that waits for its link, and then begins.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rdma_core::Deadline;

use super::inner::Inner;
use super::link_slot::{End, Way};
use super::parked::block_on;
use super::table::{Job, Need};
use super::tickets::About;
use super::{NodeError, NodeName};
use crate::kv::{Decode, Kind, KvError, Prefill, Receiving, Sending, Transfer};

/// A kind of transfer that a node begins: [`Sending`] or [`Receiving`]. No other type can be one.
#[expect(private_bounds, reason = "sealed: what a node needs of its links is the library's own")]
pub trait Begun: Kind + Over {}

impl Begun for Sending {}
impl Begun for Receiving {}

/// The link that a kind of transfer goes over.
pub(super) trait Over {
    const WAY: Way;
    /// The end of the link that begins such a transfer.
    type End: Send + Sync;

    fn end(end: &End) -> Option<&Arc<Self::End>>;
}

impl Over for Sending {
    const WAY: Way = Way::Out;
    type End = Prefill;

    fn end(end: &End) -> Option<&Arc<Prefill>> {
        if let End::Out(end) = end { Some(end) } else { None }
    }
}

impl Over for Receiving {
    const WAY: Way = Way::In;
    type End = Decode;

    fn end(end: &End) -> Option<&Arc<Decode>> {
        if let End::In(end) = end { Some(end) } else { None }
    }
}

/// The call that begins a transfer on an end.
type Ask<K> = Box<dyn FnMut(&<K as Over>::End) -> Result<Transfer<K>, KvError> + Send>;

/// A transfer that begins as soon as its peer is connected and linked. Returned by
/// [`KvNode::grant`](super::KvNode::grant) and its sisters.
///
/// This is a future, whose output is the handle of the transfer. Dropping it before it is ready begins nothing, and
/// holds no block. The transfer's deadline bounds this wait, too.
#[must_use = "a transfer begins when this is awaited or waited for"]
pub struct Begin<K: Begun> {
    inner: Arc<Inner>,
    peer: String,
    asked: Instant,
    deadline: Deadline,
    ask: Ask<K>,
    /// The number of the ticket, and the incarnation of the peer that it is for.
    ticket: Option<(u64, u64)>,
}

impl<K: Begun> Begin<K> {
    pub(super) fn new(inner: &Arc<Inner>, peer: &str, deadline: Deadline, ask: Ask<K>) -> Self {
        let (inner, peer, asked) = (Arc::clone(inner), peer.to_owned(), Instant::now());
        Self { inner, peer, asked, deadline, ask, ticket: None }
    }

    /// Waits until the transfer has begun; its deadline is that of the transfer.
    ///
    /// # Errors
    ///
    /// The errors of awaiting it: [`NodeError::Unknown`], [`NodeError::Left`], [`NodeError::NothingToMove`],
    /// [`NodeError::Link`], [`NodeError::Unreachable`] and [`NodeError::Late`] when there is no link;
    /// [`NodeError::Transfer`] with the reason why the transfer does not begin on it.
    pub fn wait(self) -> Result<Transfer<K>, NodeError> {
        let deadline = self.deadline;
        block_on(self, deadline)
    }

    /// Begins the transfer if the link is up, and asks for the link otherwise; never waits.
    ///
    /// # Errors
    ///
    /// This future comes back while the link is not up; otherwise the errors of [`wait`](Self::wait).
    pub fn try_now(mut self) -> Result<Result<Transfer<K>, NodeError>, Self> {
        match self.step(Waker::noop()) {
            Poll::Ready(begun) => Ok(begun),
            Poll::Pending => Err(self),
        }
    }

    fn step(&mut self, waker: &Waker) -> Poll<Result<Transfer<K>, NodeError>> {
        self.inner.engine.check_process()?;
        loop {
            let now = Instant::now();
            let need = self.inner.change(|table| table.need(&self.peer, K::WAY, now));
            let end = match need {
                Err(error) => return Poll::Ready(Err(self.told().unwrap_or(error))),
                Ok(Need::Up(end)) => end,
                Ok(Need::Wait { peer, incarnation }) => return self.sleep((peer, incarnation), waker),
            };
            let begun = K::end(&end).map(|end| (self.ask)(end));
            self.release(end);
            match begun {
                Some(Ok(transfer)) => return Poll::Ready(Ok(transfer)),
                // The link has ended just now: another one is made.
                Some(Err(KvError::LinkEnded { .. })) if !self.deadline.expired() => {}
                Some(Err(source)) => {
                    let peer = NodeName::new(&self.peer);
                    return Poll::Ready(Err(
                        peer.map_or_else(|error| error, |peer| NodeError::Transfer { peer, source })
                    ));
                }
                None => return Poll::Ready(Err(NodeError::Closed)),
            }
        }
    }

    /// Waits for a change at the peer, unless the wait is in vain.
    fn sleep(&mut self, peer: (NodeName, u64), waker: &Waker) -> Poll<Result<Transfer<K>, NodeError>> {
        if self.deadline.expired() {
            let late = NodeError::Late { peer: peer.0, waited: self.asked.elapsed() };
            return Poll::Ready(Err(self.told().unwrap_or(late)));
        }
        let (ticket, deadline, incarnation) = (self.ticket, self.deadline.instant(), peer.1);
        let (id, error, replaced) = self.inner.change(|table| {
            let stale =
                ticket.filter(|(_, of)| *of != incarnation).and_then(|(id, _)| table.tickets.remove(id));
            let id = match ticket {
                Some((id, of)) if of == incarnation => id,
                _ => table.tickets.add(peer, About::Link(K::WAY), deadline),
            };
            let (error, replaced) = table.tickets.look(id, waker);
            (id, error, [stale, replaced])
        });
        drop(replaced);
        self.ticket = Some((id, incarnation));
        // The node's thread sleeps until the first deadline that it knew.
        self.inner.nudge.send();
        error.map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
    }

    /// The reason why this has waited in vain, if there is one.
    fn told(&mut self) -> Option<NodeError> {
        let (ticket, _) = self.ticket?;
        self.inner.change(|table| table.tickets.look(ticket, Waker::noop())).0
    }

    /// Gives an end back: if the table has let go of it meanwhile, a thread that may block ends it.
    fn release(&self, end: End) {
        if let Some(last) = end.last() {
            self.inner.change(|table| table.jobs.push_back(Job::Drop(last)));
        }
    }
}

impl<K: Begun> Future for Begin<K> {
    type Output = Result<Transfer<K>, NodeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.step(context.waker())
    }
}

impl<K: Begun> Drop for Begin<K> {
    fn drop(&mut self) {
        if let Some((ticket, _)) = self.ticket.take().filter(|_| !self.inner.engine.is_forked()) {
            let waker = self.inner.change(|table| table.tickets.remove(ticket));
            drop(waker);
        }
    }
}

impl<K: Begun> fmt::Debug for Begin<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begin")
            .field("peer", &self.peer)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
