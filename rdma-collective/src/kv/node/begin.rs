//! [`Begin`]: a transfer that waits for its link, and then begins.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rdma_core::Deadline;

use super::inner::Inner;
use super::jobs::Job;
use super::link_slot::{End, Way};
use super::parked::block_on;
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
            let (looked, replaced) = self.look(waker);
            drop(replaced);
            let end = match looked {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(end)) => end,
            };
            let begun = K::end(&end).map(|end| (self.ask)(end));
            self.release(end);
            match begun {
                Some(Ok(transfer)) => return Poll::Ready(Ok(transfer)),
                // The link has ended just now: another one is made.
                Some(Err(KvError::LinkEnded { .. })) if !self.deadline.expired() => {}
                Some(Err(source)) => {
                    let peer = NodeName::new(&self.peer)?;
                    return Poll::Ready(Err(NodeError::Transfer { peer, source }));
                }
                None => return Poll::Ready(Err(NodeError::Closed)),
            }
        }
    }

    /// Looks for the link, and has it made; or keeps the waker, in one step with the look, so that no change is missed.
    /// Drop the wakers that come back only after this has returned.
    fn look(&mut self, waker: &Waker) -> (Poll<Result<End, NodeError>>, [Option<Waker>; 2]) {
        let Self { inner, peer, asked, deadline, ticket, .. } = self;
        let now = Instant::now();
        let ready = |looked| (Poll::Ready(looked), [None, None]);
        inner.change(|table| {
            if let Some(end) = table.link(peer, K::WAY, now) {
                return ready(Ok(end));
            }
            if let Some(error) = ticket.and_then(|(id, _)| table.tickets.take_error(id)) {
                return ready(Err(error));
            }
            if deadline.expired()
                && let Some((peer, _)) = table.find(peer)
            {
                return ready(Err(NodeError::Late { peer, waited: asked.elapsed() }));
            }
            let (name, incarnation) = match table.need(peer, K::WAY, now) {
                Err(error) => return ready(Err(error)),
                Ok(peer) => peer,
            };
            // A ticket of an earlier process of the name is of no use any more.
            let stale = ticket.take_if(|(_, of)| *of != incarnation);
            let stale = stale.and_then(|(id, _)| table.tickets.remove(id));
            let about = About::Link(K::WAY);
            let (id, _) = *ticket.get_or_insert_with(|| {
                (table.tickets.add((name, incarnation), about, deadline.instant()), incarnation)
            });
            (Poll::Pending, [stale, table.tickets.sleep(id, waker)])
        })
    }

    /// Gives an end back: if the table has let go of it meanwhile, a thread that may block ends it.
    fn release(&self, end: End) {
        if let Some(last) = end.last() {
            self.inner.change(|table| table.jobs.push(Job::Drop(last)));
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
