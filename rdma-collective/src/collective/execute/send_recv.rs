//! Sends and receives of one rank under way together: each goes on as messages and slots of its link allow, whatever the others do.
//!
//! They have no number among the operations of all ranks, and lie before the next of those. On its link each has a number of its
//! own, by which both ends know that they mean the same.

use std::task::Poll;
use std::time::Instant;

use rdma_core::AttachedRange;
use rdma_core::memory::CacheHint;

use super::buffers::{Borrowed, Buffers, Message};
use super::p2p::{ZERO_COPY_BYTES_MIN, check_length, put_range, signal, unsent};
use super::stop::{Progress, Stop, is_ended_by, odd};
use crate::collective::DataType;
use crate::collective::call::Collective;
use crate::collective::communicator::{Link, Lost, Reach, RingLinks, WaitingFor};
use crate::collective::operation::{DAMAGED, Header};
use crate::collective::schedule::{Source, Span};
use crate::collective::send_recv_set::{SelfTransfer, SendRecvSet, Transfer};
use crate::engine::EngineState;
use crate::link::LaneFailure;

/// Where what is sent and received lies; `index` is that of the send or receive.
pub(super) trait SendRecvBuffers {
    /// Where the bytes of a send lie when they are registered: they stay there until the operation has ended.
    fn range(&self, index: usize, span: Span) -> Option<AttachedRange>;

    /// `out = sent[span]`.
    fn read(&self, index: usize, span: Span, out: &mut [u8]);

    /// `received[span] = message`.
    fn copy_from(&mut self, index: usize, message: Message<'_>, span: Span);

    /// `received = sent`, both of them `len` bytes long.
    fn copy(&mut self, from: usize, to: usize, len: usize);
}

/// What an operation owns: it sends its input, and receives its output.
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

/// A slice of the caller's for each.
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
        self.received(to).copy_from_slice(sent);
    }
}

/// See the module.
#[derive(Debug)]
pub(in crate::collective) struct SendRecvExec {
    flows: Vec<TransferExec>,
    own: Vec<SelfTransfer>,
    rank: u32,
    /// Operations of all ranks before it.
    sequence: u64,
    begun: bool,
    /// The one that is waited for, or at which it stopped.
    at: usize,
    started: Instant,
    progressed: Instant,
}

#[derive(Debug)]
struct TransferExec {
    point: Transfer,
    /// Sends, or receives, over the link before it.
    number: u64,
    /// The number of its first message in the mailbox, once it is its turn.
    first: Option<u64>,
    /// Chunks of it, those that were put or used, and those whose slots were given back.
    chunks: u64,
    moved: u64,
    given_back: u64,
}

/// What the rank does by itself.
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
        self.moved == self.chunks && (self.point.sends || self.given_back == self.chunks)
    }

    fn span(&self) -> Span {
        self.point.cut.span(self.point.call.bytes(), self.moved)
    }

    /// Whether what it receives next has arrived, and waits for room alone.
    fn has_more(&self, ring: &RingLinks) -> bool {
        let (Some(first), Some(link)) = (self.first, ring.link_table.link(self.point.peer)) else {
            return false;
        };
        self.moved < self.chunks && link.mailbox.inbox.arrived(first + self.moved).is_some()
    }

    fn left(&self) -> u64 {
        let len = self.point.call.bytes();
        let rest = self.moved..if self.point.sends { self.moved } else { self.chunks };
        rest.map(|index| self.point.cut.span(len, index).len as u64).sum()
    }

    /// Puts what the link takes now.
    fn send<M: SendRecvBuffers>(
        &mut self,
        (rank, index): (u32, usize),
        link: &mut Link,
        core: &mut EngineState,
        memory: &M,
    ) -> bool {
        let before = self.moved;
        while self.moved < self.chunks {
            let Some(lane) = core.lane(link.lane) else { break };
            if !link.mailbox.outbox.is_ready(lane) {
                break;
            }
            let span = self.span();
            let header = (self.moved == 0).then(|| self.point.call.header(rank, self.number).in_slot());
            let stays = self.point.in_place.is_none();
            let range = if header.is_none() && stays && span.len >= ZERO_COPY_BYTES_MIN {
                memory.range(index, span)
            } else {
                None
            };
            let put = match range {
                Some(range) => put_range(&mut link.mailbox, lane, range, span.len),
                None => link.mailbox.outbox.put_with(lane, header.as_ref(), span.len, |slot| {
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

    /// Uses what has arrived of the chunks below `end`; whether there was something.
    fn receive<M: SendRecvBuffers>(
        &mut self,
        (rank, index): (u32, usize),
        end: u64,
        link: &mut Link,
        core: &mut EngineState,
        memory: &mut M,
    ) -> Result<bool, Stop> {
        let first = *self.first.get_or_insert_with(|| link.mailbox.inbox.given_back());
        let (before, end) = (self.moved, end.min(self.chunks));
        loop {
            let number = first + self.moved;
            if self.moved < end && link.mailbox.inbox.arrived(number).is_some() {
                if self.moved == 0 {
                    self.check_header(rank, number, link, core)?;
                }
                let span = self.span();
                check_length(link, core, (number, self.moved == 0), span.len)?;
                memory.copy_from(index, Message { inbox: &link.mailbox.inbox, number }, span);
                self.moved += 1;
            }
            let owed = self.moved - self.given_back;
            let due = owed >= self.point.cut.signal_every || self.moved == self.chunks;
            if owed > 0 && due && signal(link, core, first + self.moved) {
                self.given_back = self.moved;
            }
            let more = self.moved < end && link.mailbox.inbox.arrived(first + self.moved).is_some();
            if !more {
                return Ok(self.moved > before);
            }
        }
    }

    /// Whether the other rank sends what this one receives.
    fn check_header(
        &self,
        rank: u32,
        number: u64,
        link: &mut Link,
        core: &mut EngineState,
    ) -> Result<(), Stop> {
        let expected = self.point.call.sent_by(rank).header(rank, self.number);
        match Header::read(&link.mailbox.inbox.header(number)) {
            Ok(theirs) if expected.agrees(&theirs) => Ok(()),
            Ok(theirs) => Err(Stop::Mismatch { ours: self.point.call.header(rank, self.number), theirs }),
            Err(_) => Err(odd(link, core, DAMAGED)),
        }
    }
}

impl SendRecvExec {
    /// What `rank` does before operation `sequence` of all ranks.
    pub(super) fn new(points: &SendRecvSet, (rank, sequence): (u32, u64), started: Instant) -> Self {
        let flows = points.all.iter().map(|point| TransferExec::new(*point)).collect();
        let own = points.own.clone();
        Self { flows, own, rank, sequence, begun: false, at: 0, started, progressed: started }
    }

    /// Goes on as far as it can.
    pub(super) fn advance<M: SendRecvBuffers>(
        &mut self,
        ring: &mut RingLinks,
        core: &mut EngineState,
        memory: &mut M,
    ) -> Poll<Result<(), Stop>> {
        if !self.begun {
            if let Some(rank) = self.unconnected(ring) {
                return Poll::Ready(Err(Stop::Unconnected(rank)));
            }
            self.begin(ring, memory);
        }
        match self.try_advance(ring, core, memory) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => {
                let awaited = self.waits_for(ring, core);
                ring.wait(core, self.sequence, awaited, self.progressed);
                Poll::Pending
            }
            Err(stop) => Poll::Ready(Err(stop)),
        }
    }

    /// Does what the rank does by itself, and numbers the others.
    fn begin<M: SendRecvBuffers>(&mut self, ring: &mut RingLinks, memory: &mut M) {
        self.begun = true;
        copy_own(&self.own, memory);
        ring.link_table.begin(0);
        for flow in &mut self.flows {
            if flow.point.peer == self.rank {
                (flow.moved, flow.given_back) = (flow.chunks, flow.chunks);
            }
            let Some(link) = ring.link_table.link_mut(flow.point.peer) else { continue };
            let count = match flow.point.sends {
                true => &mut link.mailbox.points_sent,
                false => &mut link.mailbox.points_received,
            };
            flow.number = *count;
            *count += 1;
        }
    }

    fn try_advance<M: SendRecvBuffers>(
        &mut self,
        ring: &mut RingLinks,
        core: &mut EngineState,
        memory: &mut M,
    ) -> Result<bool, Stop> {
        let taken = ring.take_arrivals(core);
        // What another rank has found out comes before what this one finds: it may have ended because of that.
        if let Some(abort) = ring.abort.filter(|abort| is_ended_by(&self.placed(), abort)) {
            return Err(Stop::Abort(abort));
        }
        taken.map_err(Stop::Lost)?;
        for index in 0..self.flows.len() {
            let (waits, end) = (self.waits_behind(index), self.end(index));
            let flow = &mut self.flows[index];
            if waits || flow.is_done() {
                continue;
            }
            let Some(link) = ring.link_table.link_mut(flow.point.peer) else { continue };
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
                    self.at = index;
                    return Err(stop);
                }
            }
        }
        let undone = self.flows.iter().position(|flow| !flow.is_done());
        self.at = undone.unwrap_or(self.at);
        if undone.is_none() && unsent(ring, core).is_none() {
            return Ok(true);
        }
        self.check_lanes(ring, core)?;
        Ok(false)
    }

    /// Another rank to which there can be no link, as an operation before it has found since it was queued. Then nothing is sent, and
    /// nobody else sends anything either.
    fn unconnected(&self, ring: &RingLinks) -> Option<u32> {
        let mut others = self.flows.iter().map(|flow| flow.point.peer).filter(|peer| *peer != self.rank);
        others.next().filter(|_| ring.link_table.reach() < Reach::All)
    }

    /// Whether one before it goes first.
    fn waits_behind(&self, index: usize) -> bool {
        self.flows[index].point.behind.is_some_and(|before| !self.flows[before].is_done())
    }

    /// Up to which chunk there is room for what is received: in place, what lies there has to be put before.
    fn end(&self, index: usize) -> u64 {
        let TransferExec { point, chunks, .. } = &self.flows[index];
        point.in_place.map_or(*chunks, |sent| self.flows[sent].moved)
    }

    /// Not all is done: whether it ever will be. A rank that has left in good order matters if something is to come from it, or to
    /// go to it.
    fn check_lanes(&mut self, ring: &RingLinks, core: &mut EngineState) -> Result<(), Stop> {
        let near = ring.ended(core).into_iter().flatten().filter(Lost::is_loss);
        let undone = |rank| {
            let waits =
                |flow: &TransferExec| flow.point.peer == rank && !flow.is_done() && !flow.has_more(ring);
            self.flows.iter().position(waits)
        };
        let linked = ring.link_table.ended(core);
        let matters = |lost: &Lost| !matches!(lost.cause, LaneFailure::Closed) || undone(lost.rank).is_some();
        // It may have left because of another, which is named then.
        let Some(lost) = near.chain(linked).filter(matters).min_by_key(|lost| !lost.is_loss()) else {
            return Ok(());
        };
        self.at = undone(lost.rank).unwrap_or(self.at);
        Err(Stop::Lost(lost))
    }

    /// The rank that it waits for, while it waits.
    pub(super) fn waits_for(&self, ring: &RingLinks, core: &mut EngineState) -> WaitingFor {
        let undone = self.flows.get(self.at).filter(|flow| !flow.is_done());
        let rank = undone.map(|flow| flow.point.peer).or_else(|| unsent(ring, core));
        WaitingFor::Linked(rank.unwrap_or(self.rank))
    }

    /// Its header as that of an operation of all ranks.
    fn placed(&self) -> Header {
        Header { sequence: self.sequence, ..self.header() }
    }

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
