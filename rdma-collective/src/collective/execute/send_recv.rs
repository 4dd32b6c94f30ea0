//! The executor of point-to-point sends and receives: one call, or a group of them, of one rank.
//!
//! Each transfer advances as the messages and slots of its link allow, independent of the others. A group would
//! otherwise deadlock when two ranks list their transfers in different orders. `send_recv_set` checks the group
//! before; this file moves the bytes.
//!
//! Transfers have no sequence number among the collectives, because only two ranks take part. They run before the
//! next collective. Each has a number on its link and in its direction, by which both ends check that they mean the
//! same one.

use std::task::Poll;
use std::time::Instant;

use rdma_core::AttachedRange;
use rdma_core::memory::CacheHint;

use super::buffers::{Borrowed, Buffers, Message, ZERO_COPY_BYTES_MIN};
use super::link_exec::check_length;
use super::stop::{Progress, Stop, is_ended_by};
use crate::collective::DataType;
use crate::collective::call::Collective;
use crate::collective::communicator::{Link, Links, Reach, WaitingFor, at_fault};
use crate::collective::operation::{DAMAGED, Header};
use crate::collective::schedule::{Source, Span};
use crate::collective::send_recv_set::{SelfTransfer, SendRecvSet, Transfer};
use crate::engine::EngineState;

/// The buffers of the transfers; `index` is the position of a transfer in its group.
pub(super) trait SendRecvBuffers {
    /// The registered range that holds `span` of a send, which stays until the operation has ended; `None` if the
    /// bytes are borrowed.
    fn range(&self, index: usize, span: Span) -> Option<AttachedRange>;

    /// `out = sent[span]`.
    fn read(&self, index: usize, span: Span, out: &mut [u8]);

    /// `received[span] = message`.
    fn copy_from(&mut self, index: usize, message: Message<'_>, span: Span);

    /// `received = sent`. Both are `len` bytes long.
    fn copy(&mut self, from: usize, to: usize, len: usize);
}

/// The buffers that an operation owns: it sends its input, and receives into its output.
pub(super) struct Lent<'a, B>(pub(super) &'a mut B);

impl<B: Buffers> SendRecvBuffers for Lent<'_, B> {
    fn range(&self, _: usize, span: Span) -> Option<AttachedRange> {
        self.0.range(Source::Input, span)
    }

    fn read(&self, _: usize, span: Span, out: &mut [u8]) {
        self.0.read(span, out);
    }

    fn copy_from(&mut self, _: usize, message: Message<'_>, span: Span) {
        self.0.copy_from(message, span);
    }

    fn copy(&mut self, _: usize, _: usize, len: usize) {
        self.0.copy(Span { offset: 0, len }, CacheHint::Cached);
    }
}

/// Borrowed buffers: one slice of the caller per transfer, in the order of the group.
#[derive(Debug, Default)]
pub(in crate::collective) struct Slices<'a>(Vec<Slice<'a>>);

#[derive(Debug)]
enum Slice<'a> {
    Sent(&'a [u8]),
    Received(&'a mut [u8]),
}

impl<'a> Slices<'a> {
    pub(in crate::collective) fn send(&mut self, data: &'a [u8]) {
        self.0.push(Slice::Sent(data));
    }

    pub(in crate::collective) fn receive(&mut self, data: &'a mut [u8]) {
        self.0.push(Slice::Received(data));
    }

    fn sent(&self, index: usize) -> &'a [u8] {
        match self.0.get(index) {
            Some(Slice::Sent(data)) => data,
            _ => &[],
        }
    }

    fn received(&mut self, index: usize) -> &mut [u8] {
        match self.0.get_mut(index) {
            Some(Slice::Received(data)) => data,
            _ => &mut [],
        }
    }
}

impl SendRecvBuffers for Slices<'_> {
    fn range(&self, _: usize, _: Span) -> Option<AttachedRange> {
        // The device must not read borrowed memory: it might still do so after the call has failed and returned.
        None
    }

    fn read(&self, index: usize, span: Span, out: &mut [u8]) {
        out.copy_from_slice(&self.sent(index)[span.range()]);
    }

    fn copy_from(&mut self, index: usize, message: Message<'_>, span: Span) {
        Borrowed::InPlace(self.received(index)).copy_from(message, span);
    }

    fn copy(&mut self, from: usize, to: usize, _: usize) {
        let sent = self.sent(from);
        // The set has checked that both have the same length.
        self.received(to).copy_from_slice(sent);
    }
}

/// The state of a group of sends and receives.
#[derive(Debug)]
pub(in crate::collective) struct SendRecvExec {
    flows: Vec<TransferExec>,
    own: Vec<SelfTransfer>,
    rank: u32,
    /// The number of collectives before the group, which is the sequence number of the next one.
    sequence: u64,
    begun: bool,
    /// The transfer to name in reports: the first that is not done, or the one that failed.
    at: usize,
    started: Instant,
    progressed: Instant,
}

/// The state of one send or receive.
#[derive(Debug)]
struct TransferExec {
    point: Transfer,
    /// The number of transfers before this one on the link, in the same direction.
    number: u64,
    /// The number of the first message in the mailbox. It is known when the transfers before have taken theirs.
    first: Option<u64>,
    /// The number of chunks: in all, sent or received so far, and given back to the sender.
    chunks: u64,
    moved: u64,
    given_back: u64,
}

/// Carries out the sends of the rank to itself, which need no link.
pub(super) fn copy_own<M: SendRecvBuffers>(own: &[SelfTransfer], memory: &mut M) {
    for SelfTransfer { from, to, bytes } in own.iter().copied() {
        memory.copy(from, to, bytes);
    }
}

impl TransferExec {
    fn new(point: Transfer) -> Self {
        let chunks = point.cut.chunks(point.call.bytes());
        Self { point, number: 0, first: None, chunks, moved: 0, given_back: 0 }
    }

    fn is_done(&self) -> bool {
        // A receive is not done before its slots are given back. The sender would wait for them in a later operation.
        self.moved == self.chunks && (self.point.sends || self.given_back == self.chunks)
    }

    fn span(&self) -> Span {
        self.point.cut.span(self.point.call.bytes(), self.moved)
    }

    /// Whether the next message has arrived already. Only room in the receive buffer is missing then, so the transfer
    /// does not depend on the peer.
    fn has_more(&self, links: &Links) -> bool {
        let (Some(first), Some(link)) = (self.first, links.table.link(self.point.peer)) else {
            return false;
        };
        self.moved < self.chunks && link.inbox.arrived(first + self.moved).is_some()
    }

    /// The bytes that have not been received yet; 0 for a send.
    fn left(&self) -> u64 {
        let len = self.point.call.bytes();
        let rest = self.moved..if self.point.sends { self.moved } else { self.chunks };
        rest.map(|index| self.point.cut.span(len, index).len as u64).sum()
    }

    /// Sends as many chunks as the link takes now, and returns whether there was one.
    fn send<M: SendRecvBuffers>(
        &mut self,
        (rank, index): (u32, usize),
        link: &mut Link,
        core: &mut EngineState,
        memory: &M,
    ) -> bool {
        let before = self.moved;
        while self.moved < self.chunks {
            let Some(room) = link.room(core) else { break };
            let span = self.span();
            let header = (self.moved == 0).then(|| self.point.call.header(rank, self.number).in_slot());
            // In place, the receive overwrites a chunk as soon as it was put. The device might read it later than
            // that, so such a chunk is copied. The first chunk is copied, too, because the header goes in front of
            // it.
            let stays = self.point.in_place.is_none();
            let range = if header.is_none() && stays && span.len >= ZERO_COPY_BYTES_MIN {
                memory.range(index, span)
            } else {
                None
            };
            let put = match range {
                Some(range) => room.put_range(range, span.len, true),
                None => room.put_with(header.as_ref(), span.len, |slot| {
                    memory.read(index, span, slot);
                }),
            };
            if !put {
                break;
            }
            self.moved += 1;
        }
        self.moved > before
    }

    /// Receives the chunks below `end` that have arrived, and returns whether there was one.
    fn receive<M: SendRecvBuffers>(
        &mut self,
        (rank, index): (u32, usize),
        end: u64,
        link: &mut Link,
        core: &mut EngineState,
        memory: &mut M,
    ) -> Result<bool, Stop> {
        // Transfers on a link take turns, so by now all messages of the ones before are given back.
        let first = *self.first.get_or_insert_with(|| link.inbox.given_back());
        let (before, end) = (self.moved, end.min(self.chunks));
        loop {
            let number = first + self.moved;
            if self.moved < end && link.inbox.arrived(number).is_some() {
                // The headers are compared before any byte reaches the caller's buffer.
                if self.moved == 0 {
                    self.check_header(rank, number, link, core)?;
                }
                let span = self.span();
                check_length(link, core, (number, self.moved == 0), span.len)?;
                memory.copy_from(index, Message { inbox: &link.inbox, number }, span);
                self.moved += 1;
            }
            // Slots go back in groups, because each report is a message of its own; and all of them at the end. This
            // runs even if nothing was received, because the last report may have found no room.
            let owed = self.moved - self.given_back;
            let due = owed >= self.point.cut.signal_every || self.moved == self.chunks;
            if owed > 0 && due && link.give_back(core, first + self.moved) {
                self.given_back = self.moved;
            }
            let more = self.moved < end && link.inbox.arrived(first + self.moved).is_some();
            if !more {
                return Ok(self.moved > before);
            }
        }
    }

    /// Fails if the peer's send is not the one that this receive expects.
    fn check_header(
        &self,
        rank: u32,
        number: u64,
        link: &mut Link,
        core: &mut EngineState,
    ) -> Result<(), Stop> {
        let expected = self.point.call.sent_by(rank).header(rank, self.number);
        match Header::read(&link.inbox.header(number)) {
            Ok(theirs) if expected.agrees(&theirs) => Ok(()),
            Ok(theirs) => Err(Stop::Mismatch { ours: self.point.call.header(rank, self.number), theirs }),
            Err(_) => Err(Stop::Lost(link.violation(core, DAMAGED))),
        }
    }
}

impl SendRecvExec {
    /// Makes the executor of a group that `rank` runs before collective `sequence`.
    pub(super) fn new(points: &SendRecvSet, (rank, sequence): (u32, u64), started: Instant) -> Self {
        let flows = points.all.iter().map(|point| TransferExec::new(*point)).collect();
        let own = points.own.clone();
        Self { flows, own, rank, sequence, begun: false, at: 0, started, progressed: started }
    }

    /// Advances every transfer as far as it can go now.
    pub(super) fn advance<M: SendRecvBuffers>(
        &mut self,
        links: &mut Links,
        core: &mut EngineState,
        memory: &mut M,
    ) -> Poll<Result<(), Stop>> {
        if !self.begun {
            // Checked before the transfers are numbered: a group that sends nothing must not count on any link.
            if let Some(rank) = self.unconnected(links) {
                return Poll::Ready(Err(Stop::Unconnected(rank)));
            }
            self.begin(links, memory);
        }
        match self.try_advance(links, core, memory) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => {
                let awaited = self.waits_for(links, core);
                links.wait(core, self.sequence, awaited, self.progressed);
                Poll::Pending
            }
            Err(stop) => Poll::Ready(Err(stop)),
        }
    }

    /// Copies the sends of the rank to itself, and numbers the other transfers.
    ///
    /// Numbers are given here and not when a transfer gets its turn, so that they follow the order of the calls. Both
    /// ends must count alike.
    fn begin<M: SendRecvBuffers>(&mut self, links: &mut Links, memory: &mut M) {
        self.begun = true;
        copy_own(&self.own, memory);
        links.table.begin(0);
        for flow in &mut self.flows {
            // There is no link to the rank itself. Its transfers are done with the copies above.
            if flow.point.peer == self.rank {
                (flow.moved, flow.given_back) = (flow.chunks, flow.chunks);
            }
            let Some(link) = links.table.link_mut(flow.point.peer) else { continue };
            let count = match flow.point.sends {
                true => &mut link.points_sent,
                false => &mut link.points_received,
            };
            flow.number = *count;
            *count += 1;
        }
    }

    fn try_advance<M: SendRecvBuffers>(
        &mut self,
        links: &mut Links,
        core: &mut EngineState,
        memory: &mut M,
    ) -> Result<bool, Stop> {
        let taken = links.take_arrivals(core);
        // The abort of another rank comes before any failure that this rank finds, because a peer may have ended as a
        // consequence of the abort.
        if let Some(abort) = links.abort.filter(|abort| is_ended_by(&self.placed(), abort)) {
            return Err(Stop::Abort(abort));
        }
        taken.map_err(Stop::Lost)?;
        for index in 0..self.flows.len() {
            // Only the first message of a transfer carries a header. The others are known by their order alone, so a
            // transfer must not overtake the one before it on the same link.
            let (waits, end) = (self.waits_behind(index), self.end(index));
            let flow = &mut self.flows[index];
            if waits || flow.is_done() {
                continue;
            }
            let Some(link) = links.table.link_mut(flow.point.peer) else { continue };
            let which = (self.rank, index);
            let moved = if flow.point.sends {
                Ok(flow.send(which, link, core, memory))
            } else {
                flow.receive(which, end, link, core, memory)
            };
            match moved {
                Ok(true) => self.progressed = core.now(),
                Ok(false) => {}
                Err(stop) => {
                    // The report must name the transfer that failed, not the first one that waits.
                    self.at = index;
                    return Err(stop);
                }
            }
        }
        let undone = self.flows.iter().position(|flow| !flow.is_done());
        self.at = undone.unwrap_or(self.at);
        // All chunks are put, but the device may still read some of them from the operation's memory.
        if undone.is_none() && links.table.unsent(core).is_none() {
            return Ok(true);
        }
        self.check_lanes(links, core)?;
        Ok(false)
    }

    /// A peer to which no link can be made.
    ///
    /// The links may have turned out to be impossible after this group was queued. All ranks come to the same verdict,
    /// so no peer waits for a message of this group, and none may be sent.
    fn unconnected(&self, links: &Links) -> Option<u32> {
        let mut others = self.flows.iter().map(|flow| flow.point.peer).filter(|peer| *peer != self.rank);
        others.next().filter(|_| links.table.reach() < Reach::All)
    }

    /// Whether the transfer before this one on its link, in the same direction, is not done yet.
    fn waits_behind(&self, index: usize) -> bool {
        self.flows[index].point.behind.is_some_and(|before| !self.flows[before].is_done())
    }

    /// The chunk before which a receive must stop. In place, a chunk may be overwritten only after the send has put
    /// it.
    fn end(&self, index: usize) -> u64 {
        let TransferExec { point, chunks, .. } = &self.flows[index];
        point.in_place.map_or(*chunks, |sent| self.flows[sent].moved)
    }

    /// Fails if the rest of the group can never be done.
    ///
    /// A peer that closed in good order matters only if a transfer with it is not done. All other ends are failures.
    fn check_lanes(&mut self, links: &Links, core: &mut EngineState) -> Result<(), Stop> {
        let undone = |rank| {
            let waits =
                |flow: &TransferExec| flow.point.peer == rank && !flow.is_done() && !flow.has_more(links);
            self.flows.iter().position(waits)
        };
        let Some(lost) = at_fault(links.table.ended(core), |rank| undone(rank).is_some()) else {
            return Ok(());
        };
        self.at = undone(lost.rank).unwrap_or(self.at);
        Err(Stop::Lost(lost))
    }

    /// The rank that the group waits for.
    pub(super) fn waits_for(&self, links: &Links, core: &mut EngineState) -> WaitingFor {
        let undone = self.flows.get(self.at).filter(|flow| !flow.is_done());
        let rank = undone.map(|flow| flow.point.peer).or_else(|| links.table.unsent(core));
        WaitingFor::Rank(rank.unwrap_or(self.rank))
    }

    /// The header with the group's place among the collectives, to compare it with an abort.
    fn placed(&self) -> Header {
        Header { sequence: self.sequence, ..self.header() }
    }

    /// The header of the transfer that reports name.
    fn header(&self) -> Header {
        let nothing = Collective::Send.at(self.rank).of(0, DataType::U8);
        let (call, number) =
            self.flows.get(self.at).map_or((nothing, 0), |flow| (flow.point.call, flow.number));
        call.header(self.rank, number)
    }

    pub(super) fn progress(&self) -> Progress {
        let Self { sequence, started, progressed, .. } = *self;
        let bytes_outstanding = self.flows.iter().map(TransferExec::left).sum();
        Progress { header: self.header(), sequence, bytes_outstanding, started, progressed }
    }
}
