//! [`Begin`]: a transfer that waits for its link, then for room, and then begins.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rdma_core::Deadline;

use super::admission::Full;
use super::inner::Inner;
use super::jobs::Job;
use super::link_slot::{End, Way};
use super::parked::block_on;
use super::table::{Asks, Table};
use super::{NodeError, NodeName};
use crate::kv::gauge::Permit;
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
type Ask<K> = Box<dyn FnMut(&<K as Over>::End, Permit) -> Result<Transfer<K>, KvError> + Send>;

/// A link, and room on it; or the wait for either, and the wakers that are not kept any more.
type Looked = (Poll<Result<Found, NodeError>>, [Option<Waker>; 2]);

/// The end of a link, room on it, and the count of ends that are lent.
type Found = (End, Permit, Arc<()>);

/// A transfer that begins as soon as its peer is connected and linked, and there is room for it. Returned by
/// [`KvNode::grant`](super::KvNode::grant) and its sisters.
///
/// This is a future, whose output is the handle of the transfer. Dropping it before it is ready begins nothing, and
/// holds no block. The transfer's deadline bounds this wait, too.
///
/// There is room while no bound of [`NodeOptions`](super::NodeOptions) is full. Requests get it by their deadlines. A
/// transfer counts until its outcome is taken or its handle dropped, so whoever begins many must take outcomes
/// meanwhile.
///
/// Give a request the same deadline at both nodes, and let one node begin it before it asks the other one to: otherwise
/// each may be full of transfers whose other half waits at the other node, until their deadlines.
#[must_use = "a transfer begins when this is awaited or waited for"]
pub struct Begin<K: Begun> {
    inner: Arc<Inner>,
    peer: String,
    asked: Instant,
    deadline: Deadline,
    /// Bytes of the blocks in this node's pool.
    bytes: u64,
    ask: Ask<K>,
    /// The number of the ticket, and the incarnation of the peer that it is for.
    ticket: Option<(u64, u64)>,
    /// The bound that was full when this was polled last.
    full: Option<Full>,
}

impl<K: Begun> Begin<K> {
    pub(super) fn new(
        inner: &Arc<Inner>,
        (peer, bytes, deadline): (&str, u64, Deadline),
        ask: Ask<K>,
    ) -> Self {
        let (inner, peer, asked) = (Arc::clone(inner), peer.to_owned(), Instant::now());
        Self { inner, peer, asked, deadline, bytes, ask, ticket: None, full: None }
    }

    /// Waits until the transfer has begun; its deadline is that of the transfer.
    ///
    /// # Errors
    ///
    /// The errors of awaiting it: [`NodeError::Unknown`], [`NodeError::Left`], [`NodeError::NothingToMove`],
    /// [`NodeError::Link`], [`NodeError::Unreachable`] and [`NodeError::Late`] when there is no link;
    /// [`NodeError::Busy`] when there is no room by the deadline, or too many requests wait; [`NodeError::Transfer`]
    /// with the reason why the transfer does not begin.
    pub fn wait(self) -> Result<Transfer<K>, NodeError> {
        let deadline = self.deadline;
        block_on(self, deadline)
    }

    /// Begins the transfer if the link is up and there is room, and asks for both otherwise; never waits.
    ///
    /// # Errors
    ///
    /// This future comes back while the link is not up, or a bound is full: [`busy`](Self::busy) names the bound. The
    /// future keeps its turn, and room that it is given stays its own until its deadline: await it, call this again, or
    /// drop it. Otherwise the errors of [`wait`](Self::wait).
    pub fn try_now(mut self) -> Result<Result<Transfer<K>, NodeError>, Self> {
        match self.step(Waker::noop()) {
            Poll::Ready(begun) => Ok(begun),
            Poll::Pending => Err(self),
        }
    }

    /// The bound that this waits for now; `None` while it waits for its link, has room, or was not polled yet.
    #[must_use]
    pub fn busy(&self) -> Option<Full> {
        let (ticket, _) = self.ticket.filter(|_| !self.inner.engine.is_forked())?;
        self.inner.look(|table| table.waits_for(self.asks(), ticket))
    }

    fn asks(&self) -> Asks<'_> {
        let Self { peer, bytes, deadline, .. } = self;
        Asks { peer, way: K::WAY, bytes: *bytes, deadline: deadline.instant() }
    }

    fn step(&mut self, waker: &Waker) -> Poll<Result<Transfer<K>, NodeError>> {
        let begun = self.begin(waker);
        if begun.is_ready() {
            self.leave();
        }
        begun
    }

    fn begin(&mut self, waker: &Waker) -> Poll<Result<Transfer<K>, NodeError>> {
        self.inner.engine.check_process()?;
        loop {
            let (looked, replaced) = self.look(waker);
            drop(replaced);
            let (end, permit, lent) = match looked {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(found)) => found,
            };
            let begun = K::end(&end).map(|end| (self.ask)(end, permit));
            self.release(end, lent);
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

    /// Looks for the link and for room, and has the link made; or keeps the waker, in one step with the look, so that
    /// no change is missed. Drop the wakers that come back only after this has returned.
    fn look(&mut self, waker: &Waker) -> Looked {
        let inner = Arc::clone(&self.inner);
        inner.change(|table| {
            let mut stale = None;
            let found = self.find(table, &mut stale).transpose();
            let replaced = match (&found, self.ticket) {
                (None, Some((id, _))) => table.tickets.sleep(id, waker),
                _ => None,
            };
            (found.map_or(Poll::Pending, Poll::Ready), [stale, replaced])
        })
    }

    /// Finds the link and room on it; `None` when this has to wait, by its ticket. Room comes after the link, so that a
    /// request that waits for a link takes none from others.
    fn find(&mut self, table: &mut Table, stale: &mut Option<Waker>) -> Result<Option<Found>, NodeError> {
        let now = Instant::now();
        let ticket = self.ticket.map(|(id, _)| id);
        let Some(end) = table.link(&self.peer, K::WAY, now) else {
            self.full = None;
            if let Some(error) = ticket.and_then(|id| table.tickets.take_error(id)) {
                return Err(error);
            }
            if let Some((peer, _)) = table.find(&self.peer).filter(|_| self.deadline.expired_at(now)) {
                return Err(NodeError::Late { peer, waited: self.asked.elapsed() });
            }
            table.need(&self.peer, K::WAY, now)?;
            let ticket = self.ticket(table, stale)?;
            table.wait_for_link(self.asks(), ticket);
            return Ok(None);
        };
        // An error that the ticket has is that of an earlier link.
        drop(ticket.and_then(|id| table.tickets.take_error(id)));
        let room = match table.take_room(self.asks(), ticket) {
            Err(full) if self.deadline.expired_at(now) => {
                return Err(self.busy_with(self.full.unwrap_or(full)));
            }
            Err(_) => {
                let ticket = self.ticket(table, stale)?;
                table.wait_for_room(self.asks(), ticket)
            }
            room => room,
        };
        self.full = room.as_ref().err().copied();
        Ok(room.ok().map(|permit| (end, permit, Arc::clone(&table.lent))))
    }

    /// The ticket of this request for the present process of the peer.
    fn ticket(&mut self, table: &mut Table, stale: &mut Option<Waker>) -> Result<u64, NodeError> {
        let Some((name, incarnation)) = table.find(&self.peer) else {
            return Err(NodeError::Unknown { peer: self.peer.clone() });
        };
        // A ticket of an earlier process of the name is of no use any more.
        let old = self.ticket.take_if(|(_, of)| *of != incarnation);
        *stale = old.and_then(|(id, _)| table.tickets.remove(id));
        if let Some((id, _)) = self.ticket {
            return Ok(id);
        }
        let added = table.add_request((name, incarnation), self.asks());
        let id = added.map_err(|full| self.busy_with(full))?;
        self.ticket = Some((id, incarnation));
        Ok(id)
    }

    fn busy_with(&self, full: Full) -> NodeError {
        let busy = |peer| NodeError::Busy { peer, full, waited: self.asked.elapsed() };
        NodeName::new(&self.peer).map_or_else(|error| error, busy)
    }

    /// Waits for nothing any more.
    fn leave(&mut self) {
        if let Some((ticket, _)) = self.ticket.take().filter(|_| !self.inner.engine.is_forked()) {
            let waker = self.inner.change(|table| {
                table.leave_room(self.asks(), ticket);
                table.tickets.remove(ticket)
            });
            drop(waker);
        }
    }

    /// Gives an end back: if the table has let go of it meanwhile, a thread that may block ends it.
    fn release(&self, end: End, lent: Arc<()>) {
        if let Some(last) = end.last() {
            self.inner.change(|table| table.jobs.push(Job::Drop(last)));
        }
        // Behind the job, so that a node which ends sees one of them. That node looks by itself from time to time, so
        // nobody has to tell it.
        drop(lent);
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
        self.leave();
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
