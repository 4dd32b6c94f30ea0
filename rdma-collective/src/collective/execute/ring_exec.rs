//! One operation of one rank under way: takes the steps of its schedule as messages and slots allow.

use std::task::Poll;
use std::time::Instant;

use rdma_core::memory::CacheHint;

use super::buffers::{Arithmetic, Buffers, Message, Piece};
use super::stop::{Progress, Stop, is_ended_by, wrong};
use crate::collective::ReduceError;
use crate::collective::call::Call;
use crate::collective::communicator::{
    Direction, HostGroup, Lost, RingLinks, Scratch, WaitingFor, at_fault, violation,
};
use crate::collective::operation::{DAMAGED, Header, OPERATION};
use crate::collective::schedule::{Schedule, Source, Span, Step, Target};
use crate::engine::EngineState;
use crate::link::LaneFailure;
use crate::link::mailbox::HEADER_BYTES;

/// See the module. Buffers and links are the caller's, and the same at each call.
#[derive(Debug)]
pub(in crate::collective) struct RingExec {
    pub(super) steps: Schedule,
    /// The step that is next; `None` at the end.
    pub(super) step: Option<Step>,
    arithmetic: Arithmetic,
    pub(super) header: Header,
    /// Whether the header still has to be sent in a message of its own, since this rank sends no others.
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
pub(super) struct ExecContext<'a, B> {
    pub(super) ring: &'a mut RingLinks,
    pub(super) host: Option<&'a HostGroup>,
    pub(super) core: &'a mut EngineState,
    pub(super) buffers: &'a mut B,
    pub(super) scratch: &'a mut Scratch,
}

impl RingExec {
    /// What `rank` has planned, as its operation `sequence`.
    pub(super) fn new(
        ring: &RingLinks,
        (call, mut steps, arithmetic): (&Call, Schedule, Arithmetic),
        (rank, sequence): (u32, u64),
        started: Instant,
    ) -> Self {
        let announce = steps.has_put_all();
        let step = steps.next();
        Self {
            steps,
            announce,
            step,
            arithmetic,
            header: call.header(rank, sequence),
            agreed: false,
            sent_before: ring.next.mailbox.sent(),
            received_before: ring.previous.mailbox.given_back(),
            started,
            progressed: started,
        }
    }

    /// It begins behind what has gone around the ring since it was made.
    pub(super) fn follow(&mut self, ring: &RingLinks, now: Instant) {
        self.sent_before = ring.next.mailbox.sent();
        self.received_before = ring.previous.mailbox.given_back();
        self.progressed = now;
    }

    /// What has gone around before was of the same operation, and has said so: nobody has to say it again.
    pub(super) fn go_on(&mut self, ring: &RingLinks, now: Instant) {
        self.follow(ring, now);
        (self.announce, self.agreed) = (false, true);
    }

    /// Takes all steps that can be taken now.
    pub(super) fn advance<B: Buffers>(&mut self, with: &mut ExecContext<'_, B>) -> Poll<Result<(), Stop>> {
        match self.try_advance(with) {
            Ok(true) => Poll::Ready(check_strays(with.host, &self.header)),
            Ok(false) => {
                // A rank of this host that does not go around the ring.
                check_strays(with.host, &self.header)?;
                with.ring.wait(with.core, self.header.sequence, self.waits_for(), self.progressed);
                Poll::Pending
            }
            Err(stop) => Poll::Ready(Err(stop)),
        }
    }

    fn try_advance<B: Buffers>(&mut self, with: &mut ExecContext<'_, B>) -> Result<bool, Stop> {
        let taken = with.ring.take_arrivals(with.core);
        // What another rank has found out comes before what this one finds: it may have ended because of that.
        if let Some(abort) = with.ring.abort.filter(|abort| is_ended_by(&self.header, abort)) {
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
            return Err(Stop::Mismatch { ours: self.header, theirs });
        }
        if self.announce {
            self.announce = !send_header(&self.header, with.ring, with.core)?;
        }
        while let Some(step) = self.step {
            if !self.take(with, step)? {
                self.check_lanes(with.ring, with.core, step)?;
                return Ok(false);
            }
            self.step = self.steps.next();
            self.progressed = with.core.now();
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
    pub(super) fn waits_for(&self) -> WaitingFor {
        WaitingFor::Neighbour(match self.step {
            Some(step) if waits_for_next(step) => Direction::Next,
            Some(_) => Direction::Previous,
            // The header has to go, or the device still reads what was put.
            None if self.announce || self.agreed => Direction::Next,
            None => Direction::Previous,
        })
    }

    pub(super) fn progress(&self) -> Progress {
        let rest = self.step.into_iter().chain(self.steps.clone());
        let bytes = rest.map(|step| match step {
            Step::ReduceFrom { span, .. } | Step::CopyFrom { span, .. } => span.len as u64,
            _ => 0,
        });
        let Self { header, started, progressed, .. } = *self;
        Progress { header, sequence: header.sequence, bytes_outstanding: bytes.sum(), started, progressed }
    }

    fn agree(&mut self, ring: &mut RingLinks, theirs: &Header) -> Result<(), Stop> {
        if theirs.sequence > self.header.sequence {
            ring.keep(*theirs);
        } else if self.header.agrees(theirs) {
            self.agreed = true;
        } else {
            return Err(Stop::Mismatch { ours: self.header, theirs: *theirs });
        }
        Ok(())
    }

    /// Whether the rank before this one is in the same operation: its first message says so, if no other has.
    fn is_agreed(&mut self, ring: &mut RingLinks, core: &mut EngineState) -> Result<bool, Stop> {
        let previous = &ring.previous;
        if !self.agreed && previous.mailbox.arrived(self.received_before).is_some() {
            match Header::read(&previous.mailbox.header(self.received_before)) {
                Ok(theirs) => self.agree(ring, &theirs)?,
                Err(_) => return Err(wrong(ring, core, DAMAGED)),
            }
        }
        Ok(self.agreed)
    }

    /// Takes one step; `false` when it has to wait.
    fn take<B: Buffers>(&mut self, with: &mut ExecContext<'_, B>, step: Step) -> Result<bool, Stop> {
        match step {
            Step::Put { message, source, span, .. } => Ok(self.put(with, message, source, span)),
            Step::WaitCount { message, .. } => {
                let number = self.received_before + message;
                Ok(self.is_agreed(with.ring, with.core)?
                    && with.ring.previous.mailbox.arrived(number).is_some())
            }
            Step::ReduceFrom { message, span, last, target, .. } => {
                let number = self.check_length(with, message, span)?;
                let arithmetic = self.arithmetic;
                if target == Target::Staged {
                    return stage(with, number, span, |buffers, message, out, scratch| {
                        buffers.reduce_to(message, span, arithmetic, last, out, scratch)
                    });
                }
                let message = Message { inbox: &with.ring.previous.mailbox, number };
                let reduced = with.buffers.reduce_from(message, span, arithmetic, last, with.scratch);
                reduced.map(|()| true).map_err(Stop::Reduce)
            }
            Step::CopyFrom { message, span, target, .. } => {
                let number = self.check_length(with, message, span)?;
                if target == Target::Staged {
                    return stage(with, number, span, |_, message, out, _| {
                        message.inbox.read(message.number, 0, out);
                        Ok(())
                    });
                }
                let message = Message { inbox: &with.ring.previous.mailbox, number };
                with.buffers.copy_from(message, span);
                Ok(true)
            }
            Step::Signal { consumed, .. } => Ok(self.signal(with.ring, with.core, consumed)),
            Step::Copy { span } => {
                with.buffers.copy(span, CacheHint::Cached);
                Ok(true)
            }
        }
    }

    fn put<B: Buffers>(
        &mut self,
        with: &mut ExecContext<'_, B>,
        message: u64,
        source: Source,
        span: Span,
    ) -> bool {
        let next = &mut with.ring.next;
        let Some(lane) = with.core.lane(next.lane) else { return false };
        if !next.mailbox.is_ready(lane) {
            return false;
        }
        debug_assert_eq!(next.mailbox.sent(), self.sent_before + message);
        let header = (message == 0).then(|| self.header.in_slot());
        if source == Source::Staged {
            return next.mailbox.put_staged(lane, header.as_ref());
        }
        let piece = Piece { source, span, last: self.steps.has_put_all() };
        with.buffers.put(&mut next.mailbox, lane, header.as_ref(), piece)
    }

    /// A message is as long as both ranks must think it is; its number in the mailbox.
    fn check_length<B>(&self, with: &mut ExecContext<'_, B>, message: u64, span: Span) -> Result<u64, Stop> {
        let number = self.received_before + message;
        let expected = span.len + if message == 0 { HEADER_BYTES } else { 0 };
        if with.ring.previous.mailbox.arrived(number) == Some(expected) {
            return Ok(number);
        }
        Err(wrong(with.ring, with.core, "a message of another length"))
    }

    fn signal(&mut self, ring: &mut RingLinks, core: &mut EngineState, consumed: u64) -> bool {
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
    fn check_lanes(&self, ring: &RingLinks, core: &mut EngineState, step: Step) -> Result<(), Stop> {
        let waits_for_next = waits_for_next(step) || self.announce;
        let lost = at_fault(ring.ended(core), [waits_for_next, !waits_for_next]);
        lost.map_or(Ok(()), |lost| Err(Stop::Lost(lost)))
    }
}

/// Whether ranks of this host are in the same operations, as far as is known here.
///
/// # Errors
///
/// One that is not, or was not.
pub(super) fn check_strays(host: Option<&HostGroup>, ours: &Header) -> Result<(), Stop> {
    Ok(host.map_or(Ok(()), |host| host.check_strays(ours))?)
}

/// Tells the rank after this one, in a message of its own; `false` when there is no room for it now.
pub(super) fn send_header(header: &Header, ring: &RingLinks, core: &mut EngineState) -> Result<bool, Stop> {
    let Some(lane) = core.lane(ring.next.lane) else { return Ok(false) };
    match lane.control(OPERATION, |body| header.write(body)) {
        Ok(sent) => Ok(sent),
        Err(_) => {
            let what = "control messages too short for a header";
            Err(Stop::Lost(violation(ring.next.rank, lane, what)))
        }
    }
}

/// Whether what it may have to wait for is the rank after this one, or a buffer that is on its way there.
fn waits_for_next(step: Step) -> bool {
    match step {
        Step::Put { .. } => true,
        Step::ReduceFrom { target, .. } | Step::CopyFrom { target, .. } => target == Target::Staged,
        _ => false,
    }
}

/// Makes the next message of one that has arrived; `false` while there is no buffer for it.
fn stage<B: Buffers>(
    with: &mut ExecContext<'_, B>,
    number: u64,
    span: Span,
    make: impl FnOnce(&B, Message<'_>, &mut [u8], &mut Scratch) -> Result<(), ReduceError>,
) -> Result<bool, Stop> {
    let RingLinks { next, previous, .. } = &mut *with.ring;
    let Some(lane) = with.core.lane(next.lane) else { return Ok(false) };
    let message = Message { inbox: &previous.mailbox, number };
    let mut made = Ok(());
    let staged =
        next.mailbox.stage(lane, span.len, |out| made = make(with.buffers, message, out, with.scratch));
    made.map(|()| staged).map_err(Stop::Reduce)
}
