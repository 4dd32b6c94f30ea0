//! One operation of one rank by messages to and from any others: takes the steps of its rounds as messages and slots allow. When it
//! is the first that needs its links, all ranks make them before.

mod linking;
mod memory;

use std::task::Poll;
use std::time::Instant;

use rdma_core::AttachedRange;

use super::buffers::{Arithmetic, Buffers};
use super::plan::{P2pPlan, Plan};
use super::ring_exec::{ExecContext, RingExec, check_strays, send_header};
use super::stop::{Progress, Stop, is_ended_by, odd, wrong};
use crate::collective::communicator::{Direction, Link, LinkMailboxes, Lost, Reach, RingLinks, WaitingFor};
use crate::collective::operation::{DAMAGED, Header};
use crate::collective::schedule::{Buffer, Extent, P2pSchedule, Primitive, Schedule, Share, Span};
use crate::engine::EngineState;
use crate::link::Lane;
use crate::link::LaneFailure;
use crate::link::mailbox::HEADER_BYTES;

use self::linking::Linking;
use self::memory::P2pMemory;
pub(super) use self::memory::copy;

/// Bytes from which a message is sent from where it lies instead of being copied.
pub(super) const ZERO_COPY_BYTES_MIN: usize = 8 * 1024;

/// See the module.
#[derive(Debug)]
pub(in crate::collective) struct P2pExec {
    steps: P2pSchedule,
    /// The step that is next; `None` at the end.
    step: Option<Primitive>,
    reach: Reach,
    arithmetic: Arithmetic,
    header: Header,
    phase: Phase,
    /// Whether the rank after this one has still to be told that this one is in the operation.
    announce: bool,
    /// Whether the rank before this one is known to be in it.
    agreed: bool,
    started: Instant,
    progressed: Instant,
}

#[derive(Debug)]
enum Phase {
    /// Nothing has been done; should links be missing, this makes them.
    Begin(Option<Box<Linking>>),
    Linking(Box<Linking>),
    Steps,
    /// There are no links, and none are needed around the ring.
    Around(Box<RingExec>),
}

impl P2pExec {
    pub(super) fn new(
        plan: &Plan,
        rounds: &P2pPlan,
        ring: &RingLinks,
        (rank, sequence): (u32, u64),
        started: Instant,
    ) -> Self {
        let (mut steps, arithmetic) = (rounds.steps.clone(), plan.arithmetic);
        let step = steps.next();
        let named = (rank, sequence);
        let linking = rounds.connect.as_deref().map(|with| {
            let run = |steps: &Schedule| {
                RingExec::new(ring, (&plan.call, steps.clone(), plan.arithmetic), named, started)
            };
            Box::new(Linking::new(
                rounds.reach,
                with.words.each_ref().map(run),
                with.instead.as_ref().map(run),
            ))
        });
        Self {
            steps,
            step,
            reach: rounds.reach,
            arithmetic,
            header: plan.call.header(rank, sequence),
            phase: Phase::Begin(linking),
            announce: true,
            agreed: false,
            started,
            progressed: started,
        }
    }

    /// Goes on as far as it can.
    pub(super) fn advance<B: Buffers>(&mut self, with: &mut ExecContext<'_, B>) -> Poll<Result<(), Stop>> {
        loop {
            match &mut self.phase {
                Phase::Begin(linking) => {
                    let missing = with.ring.link_table.reach() < self.reach;
                    self.phase = match linking.take().filter(|_| missing) {
                        Some(linking) => Phase::Linking(linking),
                        None => self.begin_steps(with),
                    };
                }
                Phase::Linking(linking) => {
                    let Poll::Ready(linked) = linking.advance(with)? else { return Poll::Pending };
                    self.phase = match linked {
                        Ok(()) => {
                            // Their words have said it.
                            (self.announce, self.agreed) = (false, true);
                            self.progressed = with.core.now();
                            self.begin_steps(with)
                        }
                        Err(around) => Phase::Around(around),
                    };
                }
                Phase::Steps => return self.advance_steps(with),
                Phase::Around(run) => return run.advance(with),
            }
        }
    }

    fn begin_steps<B>(&self, with: &mut ExecContext<'_, B>) -> Phase {
        with.ring.link_table.begin(self.steps.scratch_bytes());
        Phase::Steps
    }

    fn advance_steps<B: Buffers>(&mut self, with: &mut ExecContext<'_, B>) -> Poll<Result<(), Stop>> {
        let mut scratch = std::mem::take(&mut with.ring.link_table.scratch);
        let outcome = self.try_advance(with, &mut scratch);
        with.ring.link_table.scratch = scratch;
        match outcome {
            Ok(true) => Poll::Ready(check_strays(with.host, &self.header)),
            Ok(false) => {
                // A rank of this host that leaves messages there instead.
                check_strays(with.host, &self.header)?;
                let awaited = self.waits_for(with.ring, with.core);
                with.ring.wait(with.core, self.header.sequence, awaited, self.progressed);
                Poll::Pending
            }
            Err(stop) => Poll::Ready(Err(stop)),
        }
    }

    fn try_advance<B: Buffers>(
        &mut self,
        with: &mut ExecContext<'_, B>,
        scratch: &mut [u8],
    ) -> Result<bool, Stop> {
        let taken = with.ring.take_arrivals(with.core);
        // What another rank has found out comes before what this one finds: it may have ended because of that.
        if let Some(abort) = with.ring.abort.filter(|abort| is_ended_by(&self.header, abort)) {
            return Err(Stop::Abort(abort));
        }
        taken.map_err(Stop::Lost)?;
        self.hear_previous(with.ring, with.core)?;
        if self.announce {
            self.announce = !send_header(&self.header, with.ring, with.core)?;
        }
        while let Some(step) = self.step {
            if !self.take(with, scratch, step)? {
                self.check_lanes(with.ring, with.core, true)?;
                return Ok(false);
            }
            self.step = self.steps.next();
            self.progressed = with.core.now();
        }
        let told = !self.announce && self.agreed;
        if told && unsent(with.ring, with.core).is_none() {
            return Ok(true);
        }
        self.check_lanes(with.ring, with.core, !told)?;
        Ok(false)
    }

    /// What the rank before this one has said of its operation, in a message of its own or around the ring.
    fn hear_previous(&mut self, ring: &mut RingLinks, core: &mut EngineState) -> Result<(), Stop> {
        while let Some(theirs) = ring.ahead.front().copied()
            && theirs.sequence <= self.header.sequence
        {
            ring.ahead.pop_front();
            if !self.header.agrees(&theirs) {
                return Err(Stop::Mismatch { ours: self.header, theirs });
            }
            self.agreed = true;
        }
        let mailbox = &ring.previous.mailbox;
        let number = mailbox.given_back();
        let sent = mailbox.arrived(number).map(|_| Header::read(&mailbox.header(number)));
        let Ok(sent) = sent.transpose() else { return Err(wrong(ring, core, DAMAGED)) };
        let around = sent.filter(|theirs| theirs.sequence <= self.header.sequence);
        ring.beyond.or(around).map_or(Ok(()), |theirs| Err(Stop::Mismatch { ours: self.header, theirs }))
    }

    /// Takes one step; `false` when it has to wait.
    fn take<B: Buffers>(
        &mut self,
        with: &mut ExecContext<'_, B>,
        scratch: &mut [u8],
        step: Primitive,
    ) -> Result<bool, Stop> {
        let ExecContext { ring, core, buffers, scratch: pieces, .. } = with;
        let mut memory = P2pMemory { buffers: *buffers, scratch, pieces };
        let (Primitive::Put { to: peer, .. }
        | Primitive::Signal { to: peer, .. }
        | Primitive::WaitCount { from: peer, .. }
        | Primitive::ReduceFrom { from: peer, .. }
        | Primitive::CopyFrom { from: peer, .. }) = step
        else {
            if let Primitive::Copy { source, target } = step {
                memory.copy(source, target);
            }
            return Ok(true);
        };
        let Some(link) = ring.link_table.link_mut(peer) else { return Ok(false) };
        match step {
            Primitive::Put { message, source, copied, .. } => {
                let header = (message == 0).then(|| self.header_on(peer, |share| share.sent).in_slot());
                Ok(put(link, core, &mut memory, header.as_ref(), source, copied))
            }
            Primitive::WaitCount { message, .. } => {
                let number = link.mailbox.received_before + message;
                Ok(self.is_agreed(link, core)? && link.mailbox.inbox.arrived(number).is_some())
            }
            Primitive::ReduceFrom { message, operand, target, last, .. } => {
                let number = link.mailbox.received_before + message;
                check_length(link, core, (number, message == 0), target.len())?;
                let reduced =
                    memory.reduce(&link.mailbox.inbox, number, [operand, target], self.arithmetic, last);
                reduced.map(|()| true).map_err(Stop::Reduce)
            }
            Primitive::CopyFrom { message, target, .. } => {
                let number = link.mailbox.received_before + message;
                check_length(link, core, (number, message == 0), target.len())?;
                memory.copy_from(&link.mailbox.inbox, number, target);
                Ok(true)
            }
            Primitive::Signal { consumed, .. } => {
                let number = link.mailbox.received_before + consumed;
                Ok(signal(link, core, number))
            }
            Primitive::Copy { .. } => Ok(true),
        }
    }

    /// A step cannot be taken: whether it ever will. Who is waited for may not even have left in good order.
    fn check_lanes(&self, ring: &RingLinks, core: &mut EngineState, waits: bool) -> Result<(), Stop> {
        let awaited = self.waits_for(ring, core);
        let [next, previous] = ring.ended(core);
        let near = [(Direction::Next, next), (Direction::Previous, previous)];
        let near = near.into_iter().filter_map(|(side, lost)| Some((WaitingFor::Neighbour(side), lost?)));
        let linked = ring.link_table.ended(core).map(|lost| (WaitingFor::Linked(lost.rank), lost));
        let matters = |(of, lost): &(WaitingFor, Lost)| {
            !matches!(lost.cause, LaneFailure::Closed) || (waits && *of == awaited)
        };
        // It may have left because of another, which is named then.
        let lost = near.chain(linked).filter(matters).min_by_key(|(_, lost)| !lost.is_loss());
        lost.map_or(Ok(()), |(_, lost)| Err(Stop::Lost(lost)))
    }

    /// The rank that it waits for, while it waits.
    pub(super) fn waits_for(&self, ring: &RingLinks, core: &mut EngineState) -> WaitingFor {
        match (&self.phase, self.step) {
            (Phase::Linking(linking), _) => return linking.waits_for(),
            (Phase::Around(run), _) => return run.waits_for(),
            (_, Some(Primitive::Put { to, .. } | Primitive::Signal { to, .. })) => {
                return WaitingFor::Linked(to);
            }
            (
                _,
                Some(
                    Primitive::WaitCount { from, .. }
                    | Primitive::ReduceFrom { from, .. }
                    | Primitive::CopyFrom { from, .. },
                ),
            ) => return WaitingFor::Linked(from),
            _ => {}
        }
        match unsent(ring, core) {
            _ if self.announce => WaitingFor::Neighbour(Direction::Next),
            Some(rank) if self.agreed => WaitingFor::Linked(rank),
            _ => WaitingFor::Neighbour(Direction::Previous),
        }
    }

    pub(super) fn progress(&self) -> Progress {
        if let Phase::Around(run) = &self.phase {
            return run.progress();
        }
        let rest = self.step.into_iter().chain(self.steps.clone());
        let bytes = rest.map(|step| match step {
            Primitive::ReduceFrom { target, .. } | Primitive::CopyFrom { target, .. } => target.len() as u64,
            _ => 0,
        });
        let Self { header, started, .. } = *self;
        let progressed = match &self.phase {
            Phase::Linking(linking) => linking.progressed(),
            _ => self.progressed,
        };
        Progress { header, sequence: header.sequence, bytes_outstanding: bytes.sum(), started, progressed }
    }

    /// Whether the rank at the other end is in the same operation: its first message says so.
    fn is_agreed(&self, link: &mut Link, core: &mut EngineState) -> Result<bool, Stop> {
        let LinkMailboxes { inbox, received_before, agreed, .. } = &mut link.mailbox;
        if !*agreed && inbox.arrived(*received_before).is_some() {
            let expected = self.header_on(link.rank, |share| share.received);
            match Header::read(&inbox.header(*received_before)) {
                Ok(theirs) if expected.agrees(&theirs) => *agreed = true,
                Ok(theirs) if self.is_of_another_length(&theirs) => {
                    return Err(Stop::Counts { theirs, expected: expected.count });
                }
                Ok(theirs) => return Err(Stop::Mismatch { ours: self.header, theirs }),
                Err(_) => return Err(odd(link, core, DAMAGED)),
            }
        }
        Ok(link.mailbox.agreed)
    }

    /// What is in front of the first message to a rank, or from it: where parts are of any length, the elements that go there.
    fn header_on(&self, peer: u32, part: impl Fn(Share) -> Option<Span>) -> Header {
        let span = self.steps.share(peer).and_then(part);
        let element = self.arithmetic.data_type.size();
        let count = span.map_or(self.header.count, |span| (span.len / element) as u64);
        Header { count, ..self.header }
    }

    /// Whether a rank is in the same operation, and sends another count.
    fn is_of_another_length(&self, theirs: &Header) -> bool {
        self.steps.share(theirs.rank).is_some()
            && self.header.agrees(&Header { count: self.header.count, ..*theirs })
    }
}

fn put<B: Buffers>(
    link: &mut Link,
    core: &mut EngineState,
    memory: &mut P2pMemory<'_, B>,
    header: Option<&[u8; HEADER_BYTES]>,
    source: Extent,
    copied: bool,
) -> bool {
    let Some(lane) = core.lane(link.lane) else { return false };
    if !link.mailbox.outbox.is_ready(lane) {
        return false;
    }
    let holds_still = !copied || (source.buffer() == Buffer::Input && !memory.buffers.is_in_place());
    if header.is_none()
        && holds_still
        && source.len() >= ZERO_COPY_BYTES_MIN
        && let Some(range) = memory.range(source)
    {
        return put_range(&mut link.mailbox, lane, range, source.len());
    }
    link.mailbox.outbox.put_with(lane, header, source.len(), |slot| memory.read(source, slot))
}

/// Puts a message from where it lies; the mailbox is ready.
pub(super) fn put_range(
    boxes: &mut LinkMailboxes,
    lane: &mut Lane,
    range: AttachedRange,
    len: usize,
) -> bool {
    if boxes.ranges == 0 {
        boxes.ranges_before = lane.ranges_done();
    }
    boxes.ranges += 1;
    boxes.outbox.put_range(lane, range, len, true)
}

/// Gives the slots of all messages below `number` back; `false` when there is no room to say so now.
pub(super) fn signal(link: &mut Link, core: &mut EngineState, number: u64) -> bool {
    let Some(lane) = core.lane(link.lane) else { return false };
    // A rank that has left sends nothing more and is not told.
    if lane.room() == 0 && !lane.is_closed() {
        return false;
    }
    let freed = link.mailbox.inbox.give_back(number);
    if !lane.is_closed() {
        lane.note(freed);
    }
    true
}

/// A message, which may be the first of its operation, is as long as both ranks must think it is.
pub(super) fn check_length(
    link: &Link,
    core: &mut EngineState,
    (number, first): (u64, bool),
    len: usize,
) -> Result<(), Stop> {
    let expected = len + if first { HEADER_BYTES } else { 0 };
    if link.mailbox.inbox.arrived(number) == Some(expected) {
        return Ok(());
    }
    Err(odd(link, core, "a message of another length"))
}

/// A rank to which the device still writes from the operation's memory.
pub(super) fn unsent(ring: &RingLinks, core: &mut EngineState) -> Option<u32> {
    ring.link_table.links().find_map(|link| {
        let LinkMailboxes { ranges, ranges_before, .. } = link.mailbox;
        let lane = core.lane(link.lane).filter(|_| ranges > 0)?;
        // A peer that has left has received everything.
        let sent = lane.ranges_done() - ranges_before >= ranges || lane.is_drained();
        (!sent).then_some(link.rank)
    })
}

#[cfg(test)]
mod tests;
