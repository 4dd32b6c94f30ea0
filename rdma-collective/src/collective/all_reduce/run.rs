//! One all-reduce of one rank under way: takes the steps of its schedule as messages and slots allow.

use std::task::Poll;
use std::time::Instant;

use super::ALL_REDUCE;
use super::buffers::{Arithmetic, Buffers, Message, Piece};
use crate::collective::schedule::{Schedule, Source, Span, Step};
use crate::comm::link::mailbox::HEADER_BYTES;
use crate::comm::operation::{Abort, Header, OPERATION};
use crate::comm::{Core, Direction, Lost, RingLinks, Scratch, violation};
use crate::error::{AbortReason, LaneFailure, ReduceError};

/// Why an operation stops before its end.
pub(super) enum Stop {
    /// Nothing comes from a neighbour any more.
    Lost(Lost),
    /// Another rank gave up.
    Abort(Abort),
    /// The rank before this one is in another operation.
    Mismatch(Header),
    /// The arithmetic refused.
    Reduce(ReduceError),
}

/// See the module. Buffers and links are the caller's, and the same at each call.
#[derive(Debug)]
pub(in crate::collective) struct Run {
    pub(super) steps: Schedule,
    /// The step that is next; `None` at the end.
    pub(super) step: Option<Step>,
    arithmetic: Arithmetic,
    pub(super) header: Header,
    /// Whether the header still has to be sent in a message of its own, since there are no others.
    announce: bool,
    /// Whether the rank before this one is known to be in the same operation.
    agreed: bool,
    /// Messages of earlier operations in each mailbox.
    sent_before: u64,
    received_before: u64,
    pub(super) started: Instant,
    /// When a step was taken last.
    pub(super) progressed: Instant,
}

/// What a run works with at each call.
pub(super) struct With<'a, B> {
    pub(super) ring: &'a mut RingLinks,
    pub(super) core: &'a mut Core,
    pub(super) buffers: &'a mut B,
    pub(super) scratch: &'a mut Scratch,
}

impl Run {
    /// Operation `sequence` of `rank`, on `bytes` of input.
    pub(super) fn new(
        ring: &RingLinks,
        mut steps: Schedule,
        arithmetic: Arithmetic,
        bytes: usize,
        (rank, sequence): (u32, u64),
        started: Instant,
    ) -> Self {
        let header = Header {
            rank,
            sequence,
            count: (bytes / arithmetic.data_type.size()) as u64,
            collective: ALL_REDUCE,
            data_type: arithmetic.data_type.code(),
            reduction: arithmetic.op.code(),
        };
        let step = steps.next();
        Self {
            steps,
            announce: step.is_none(),
            step,
            arithmetic,
            header,
            agreed: false,
            sent_before: ring.next.mailbox.sent(),
            received_before: ring.previous.mailbox.given_back(),
            started,
            progressed: started,
        }
    }

    /// From now on the neighbours' silence is looked into.
    pub(super) fn watch(ring: &RingLinks, core: &mut Core, now: Instant) {
        for lane in ring.lanes() {
            if let Some(lane) = core.lane(lane) {
                lane.watch(now);
            }
        }
    }

    /// Takes all steps that can be taken now.
    pub(super) fn advance<B: Buffers>(&mut self, with: &mut With<'_, B>) -> Poll<Result<(), Stop>> {
        match self.try_advance(with) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => {
                with.ring.wait(with.core, self.header.sequence, self.waits_for(), self.progressed);
                Poll::Pending
            }
            Err(stop) => Poll::Ready(Err(stop)),
        }
    }

    fn try_advance<B: Buffers>(&mut self, with: &mut With<'_, B>) -> Result<bool, Stop> {
        let taken = with.ring.take_arrivals(with.core);
        // What another rank has found out comes before what this one finds: it may have ended because of that.
        if let Some(abort) = with.ring.abort.filter(|abort| self.is_ended_by(abort)) {
            return Err(Stop::Abort(abort));
        }
        taken.map_err(Stop::Lost)?;
        while let Some(theirs) = with.ring.ahead.front().copied()
            && theirs.sequence <= self.header.sequence
        {
            with.ring.ahead.pop_front();
            self.agree(with.ring, &theirs)?;
        }
        if let Some(theirs) = with.ring.beyond {
            return Err(Stop::Mismatch(theirs));
        }
        if self.announce {
            self.announce = !self.send_header(with.ring, with.core)?;
        }
        while let Some(step) = self.step {
            if !self.take(with, step)? {
                self.check_lanes(with.ring, with.core, step)?;
                return Ok(false);
            }
            self.step = self.steps.next();
            self.progressed = with.core.driven();
        }
        if self.announce || !self.is_agreed(with.ring, with.core)? {
            let wait = Step::WaitCount { from: with.ring.previous.rank, message: 0 };
            self.check_lanes(with.ring, with.core, wait)?;
            return Ok(false);
        }
        let next = &with.ring.next;
        if with.buffers.is_sent(with.core.lane(next.lane)) {
            return Ok(true);
        }
        // The device still reads what was put. A rank that left in good order has it all; any other is lost.
        match next.ended(with.core) {
            None | Some(Lost { cause: LaneFailure::Closed | LaneFailure::Fenced, .. }) => Ok(false),
            Some(lost) => Err(Stop::Lost(lost)),
        }
    }

    /// The neighbour that it waits for, while it waits.
    pub(super) fn waits_for(&self) -> Direction {
        match self.step {
            Some(Step::Put { .. }) => Direction::Next,
            Some(_) => Direction::Previous,
            // The header has to go, or the device still reads what was put.
            None if self.announce || self.agreed => Direction::Next,
            None => Direction::Previous,
        }
    }

    /// Whether another rank has ended this operation, or this one's caller has.
    fn is_ended_by(&self, abort: &Abort) -> bool {
        let found_here = abort.reporter == self.header.rank && abort.reason != AbortReason::Requested;
        abort.sequence <= self.header.sequence && !found_here
    }

    fn agree(&mut self, ring: &mut RingLinks, theirs: &Header) -> Result<(), Stop> {
        if theirs.sequence > self.header.sequence {
            ring.keep(*theirs);
        } else if self.header.agrees(theirs) {
            self.agreed = true;
        } else {
            return Err(Stop::Mismatch(*theirs));
        }
        Ok(())
    }

    /// Whether the rank before this one is in the same operation: its first message says so, if no other has.
    fn is_agreed(&mut self, ring: &mut RingLinks, core: &mut Core) -> Result<bool, Stop> {
        let previous = &ring.previous;
        if !self.agreed && previous.mailbox.arrived(self.received_before).is_some() {
            match Header::read(&previous.mailbox.header(self.received_before)) {
                Ok(theirs) => self.agree(ring, &theirs)?,
                Err(_) => return Err(wrong(ring, core, "a header that is damaged")),
            }
        }
        Ok(self.agreed)
    }

    fn send_header(&mut self, ring: &RingLinks, core: &mut Core) -> Result<bool, Stop> {
        let Some(lane) = core.lane(ring.next.lane) else { return Ok(false) };
        match lane.control(OPERATION, |body| self.header.write(body)) {
            Ok(sent) => Ok(sent),
            Err(_) => {
                let what = "control messages too short for a header";
                Err(Stop::Lost(violation(ring.next.rank, lane, what)))
            }
        }
    }

    /// Takes one step; `false` when it has to wait.
    fn take<B: Buffers>(&mut self, with: &mut With<'_, B>, step: Step) -> Result<bool, Stop> {
        match step {
            Step::Put { message, source, span, .. } => Ok(self.put(with, message, source, span)),
            Step::WaitCount { message, .. } => {
                let number = self.received_before + message;
                Ok(self.is_agreed(with.ring, with.core)?
                    && with.ring.previous.mailbox.arrived(number).is_some())
            }
            Step::ReduceFrom { message, span, last, .. } => {
                let number = self.check_length(with, message, span)?;
                let message = Message { inbox: &with.ring.previous.mailbox, number };
                let reduced = with.buffers.reduce_from(message, span, self.arithmetic, last, with.scratch);
                reduced.map(|()| true).map_err(Stop::Reduce)
            }
            Step::CopyFrom { message, span, .. } => {
                let number = self.check_length(with, message, span)?;
                let message = Message { inbox: &with.ring.previous.mailbox, number };
                with.buffers.copy_from(message, span);
                Ok(true)
            }
            Step::Signal { consumed, .. } => Ok(self.signal(with.ring, with.core, consumed)),
            Step::Copy { span } => {
                with.buffers.copy(span);
                Ok(true)
            }
        }
    }

    fn put<B: Buffers>(&mut self, with: &mut With<'_, B>, message: u64, source: Source, span: Span) -> bool {
        let next = &mut with.ring.next;
        let Some(lane) = with.core.lane(next.lane) else { return false };
        if !next.mailbox.is_ready(lane) {
            return false;
        }
        debug_assert_eq!(next.mailbox.sent(), self.sent_before + message);
        let header = (message == 0).then(|| self.header.in_slot());
        let piece = Piece { source, span, last: self.steps.has_put_all() };
        with.buffers.put(&mut next.mailbox, lane, header.as_ref(), piece)
    }

    /// A message is as long as both ranks must think it is; its number in the mailbox.
    fn check_length<B>(&self, with: &mut With<'_, B>, message: u64, span: Span) -> Result<u64, Stop> {
        let number = self.received_before + message;
        let expected = span.len + if message == 0 { HEADER_BYTES } else { 0 };
        if with.ring.previous.mailbox.arrived(number) == Some(expected) {
            return Ok(number);
        }
        Err(wrong(with.ring, with.core, "a message of another length"))
    }

    fn signal(&mut self, ring: &mut RingLinks, core: &mut Core, consumed: u64) -> bool {
        let previous = &mut ring.previous;
        let Some(lane) = core.lane(previous.lane) else { return false };
        // A rank that has left sends nothing more and is not told.
        if lane.room() == 0 && !lane.is_closed() {
            return false;
        }
        let freed = previous.mailbox.give_back(self.received_before + consumed);
        if !lane.is_closed() {
            lane.note(freed);
        }
        true
    }

    /// A step cannot be taken: whether it ever will.
    fn check_lanes(&self, ring: &RingLinks, core: &mut Core, step: Step) -> Result<(), Stop> {
        let waits_for_next = matches!(step, Step::Put { .. }) || self.announce;
        let (next, previous) = (ring.next.ended(core), ring.previous.ended(core));
        for (waits, ended) in [(waits_for_next, next), (!waits_for_next, previous)] {
            match ended {
                // A rank that left in good order has done all that was asked of it, unless it is waited for.
                Some(Lost { cause: LaneFailure::Closed, .. }) if !waits => {}
                Some(lost) => return Err(Stop::Lost(lost)),
                None => {}
            }
        }
        Ok(())
    }
}

/// The rank before this one has sent what it may not send.
fn wrong(ring: &RingLinks, core: &mut Core, what: &str) -> Stop {
    let previous = &ring.previous;
    Stop::Lost(match core.lane(previous.lane) {
        Some(lane) => violation(previous.rank, lane, what),
        None => Lost { rank: previous.rank, lane: previous.name, cause: LaneFailure::Fenced, away: None },
    })
}
