//! The executor of schedules over links to any ranks: tree, pairwise and Bruck.
//!
//! The schedule decides which step comes next; this file decides when a step can be taken, and when it never will be.
//! `linking` makes the links if this is the first operation that needs them; `memory` resolves the extents of a step.

mod linking;
mod memory;

use std::task::Poll;
use std::time::Instant;

use rdma_core::AttachedRange;

use super::buffers::{Arithmetic, Buffers, ZERO_COPY_BYTES_MIN};
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

/// The state of one operation over links.
#[derive(Debug)]
pub(in crate::collective) struct P2pExec {
    steps: P2pSchedule,
    /// The next step; `None` at the end.
    step: Option<Primitive>,
    reach: Reach,
    arithmetic: Arithmetic,
    header: Header,
    phase: Phase,
    /// Whether the header has still to be sent to the next rank of the ring.
    announce: bool,
    /// Whether the previous rank of the ring is known to be in the same operation.
    agreed: bool,
    started: Instant,
    progressed: Instant,
}

/// The phase of an operation over links.
#[derive(Debug)]
enum Phase {
    /// Nothing has been done. The value makes the links, should they be missing.
    Begin(Option<Box<Linking>>),
    /// All ranks make the links.
    Linking(Box<Linking>),
    /// The steps of the schedule.
    Steps,
    /// No links can be made, and the operation goes around the ring instead.
    Around(Box<RingExec>),
}

impl P2pExec {
    /// Makes the executor of `plan` at `rank`, as operation `sequence`.
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

    /// Advances the operation as far as it can go now.
    pub(super) fn advance<B: Buffers>(&mut self, with: &mut ExecContext<'_, B>) -> Poll<Result<(), Stop>> {
        loop {
            match &mut self.phase {
                Phase::Begin(linking) => {
                    // Asked now and not when the operation was planned: one before it in the queue may have made the
                    // links.
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
                            // The gathered words went around the ring with the headers of this operation.
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

    /// Counts messages from here on, and makes room for the schedule's scratch.
    fn begin_steps<B>(&self, with: &mut ExecContext<'_, B>) -> Phase {
        with.ring.link_table.begin(self.steps.scratch_bytes());
        Phase::Steps
    }

    fn advance_steps<B: Buffers>(&mut self, with: &mut ExecContext<'_, B>) -> Poll<Result<(), Stop>> {
        // Taken out for the time of the call, because a step borrows a link and the scratch of the same table.
        let mut scratch = std::mem::take(&mut with.ring.link_table.scratch);
        let outcome = self.try_advance(with, &mut scratch);
        with.ring.link_table.scratch = scratch;
        match outcome {
            Ok(true) => Poll::Ready(check_strays(with.host, &self.header)),
            Ok(false) => {
                // A rank of this host may have chosen shared memory instead, and no step here reads its window.
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
        // The abort of another rank comes before any failure that this rank finds, because a peer may have ended as a
        // consequence of the abort.
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
        // The header goes around the ring even if this schedule sends nothing to the next rank. The ranks of a tree
        // could otherwise succeed while some rank has called another operation.
        let announced = !self.announce && self.agreed;
        if announced && unsent(with.ring, with.core).is_none() {
            return Ok(true);
        }
        self.check_lanes(with.ring, with.core, !announced)?;
        Ok(false)
    }

    /// Compares the header that the previous rank of the ring has sent, in a control message or in front of a message.
    ///
    /// A message in the ring's mailbox is of an operation around the ring. If it is not of a later one, the previous
    /// rank has called something else.
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

    /// Takes one step; `false` if the step has to wait. A step that waits has changed nothing, and is taken again
    /// later.
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
                // The headers are compared before the first byte is used, because a message of another operation may
                // have the same length.
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

    /// Fails if the operation can never go on. `waits` says whether it waits for a peer; that peer must not even have
    /// closed in good order.
    fn check_lanes(&self, ring: &RingLinks, core: &mut EngineState, waits: bool) -> Result<(), Stop> {
        let awaited = self.waits_for(ring, core);
        let [next, previous] = ring.ended(core);
        let neighbours = [(Direction::Next, next), (Direction::Previous, previous)].into_iter();
        let neighbours = neighbours.filter_map(|(side, lost)| Some((WaitingFor::Neighbour(side), lost?)));
        let linked = ring.link_table.ended(core).map(|lost| (WaitingFor::Linked(lost.rank), lost));
        let matters = |(of, lost): &(WaitingFor, Lost)| {
            !matches!(lost.cause, LaneFailure::Closed) || (waits && *of == awaited)
        };
        // A failure is preferred over an end in good order: that peer may have closed because of the failure.
        let lost = neighbours.chain(linked).filter(matters).min_by_key(|(_, lost)| !lost.is_loss());
        lost.map_or(Ok(()), |(_, lost)| Err(Stop::Lost(lost)))
    }

    /// The rank that the operation waits for.
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
        // No step is left. The headers come before the unsent messages, because a rank that has called something else
        // explains both.
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

    /// Whether the peer is in the same operation. The header in front of its first message is compared.
    fn is_agreed(&self, link: &mut Link, core: &mut EngineState) -> Result<bool, Stop> {
        let LinkMailboxes { inbox, received_before, agreed, .. } = &mut link.mailbox;
        if !*agreed && inbox.arrived(*received_before).is_some() {
            let expected = self.header_on(link.rank, |share| share.received);
            match Header::read(&inbox.header(*received_before)) {
                Ok(theirs) if expected.agrees(&theirs) => *agreed = true,
                // Only the counts differ: the callers' uneven parts do not match, which has an error of its own.
                Ok(theirs) if self.is_of_another_length(&theirs) => {
                    return Err(Stop::Counts { theirs, expected: expected.count });
                }
                Ok(theirs) => return Err(Stop::Mismatch { ours: self.header, theirs }),
                Err(_) => return Err(odd(link, core, DAMAGED)),
            }
        }
        Ok(link.mailbox.agreed)
    }

    /// The header in front of the first message to a peer, or from it. If the parts are uneven, its count is that of
    /// the elements for this peer, because no rank knows the counts of all pairs.
    fn header_on(&self, peer: u32, part: impl Fn(Share) -> Option<Span>) -> Header {
        let span = self.steps.share(peer).and_then(part);
        let element = self.arithmetic.element;
        let count = span.map_or(self.header.count, |span| (span.len / element) as u64);
        Header { count, ..self.header }
    }

    /// Whether the peer is in the same operation and differs in the count alone.
    fn is_of_another_length(&self, theirs: &Header) -> bool {
        self.steps.share(theirs.rank).is_some()
            && self.header.agrees(&Header { count: self.header.count, ..*theirs })
    }
}

/// Puts a message; `false` if the link has no room for it now.
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
    // The device may read a range long after the put. The schedule sets `copied` if a later step may
    // write to the source meanwhile. An input apart from the output is never written.
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

/// Puts a message that the device reads in registered memory. The mailbox must be ready.
pub(super) fn put_range(
    boxes: &mut LinkMailboxes,
    lane: &mut Lane,
    range: AttachedRange,
    len: usize,
) -> bool {
    // The lane counts its completed ranges over all operations. The count before the first put is this operation's
    // zero.
    if boxes.ranges == 0 {
        boxes.ranges_before = lane.ranges_done();
    }
    boxes.ranges += 1;
    boxes.outbox.put_range(lane, range, len, true)
}

/// Gives back the slots of all messages below `number`; `false` if there is no room to say so now.
pub(super) fn signal(link: &mut Link, core: &mut EngineState, number: u64) -> bool {
    let Some(lane) = core.lane(link.lane) else { return false };
    // A rank that has closed sends nothing more. It needs no slots, and waiting for room on its lane would never end.
    if lane.room() == 0 && !lane.is_closed() {
        return false;
    }
    let freed = link.mailbox.inbox.give_back(number);
    if !lane.is_closed() {
        lane.note(freed);
    }
    true
}

/// Fails if a message has not the length that both ranks compute from the schedule. A `first` one has a header in
/// front.
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

/// A peer to which the device still writes from the operation's memory. The memory cannot go back to the caller
/// before.
pub(super) fn unsent(ring: &RingLinks, core: &mut EngineState) -> Option<u32> {
    ring.link_table.links().find_map(|link| {
        let LinkMailboxes { ranges, ranges_before, .. } = link.mailbox;
        let lane = core.lane(link.lane).filter(|_| ranges > 0)?;
        // A drained lane has no request under way, so the device reads nothing any more.
        let sent = lane.ranges_done() - ranges_before >= ranges || lane.is_drained();
        (!sent).then_some(link.rank)
    })
}

#[cfg(test)]
mod tests;
