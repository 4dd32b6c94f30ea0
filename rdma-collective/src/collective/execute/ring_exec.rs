//! The executor of the link protocol: carries out a ring or chain schedule over the two links to the neighbours.
//!
//! The schedule decides which step comes next; this file decides when a step can be taken, and when it never will be.
//! The mailboxes own the slots, and `stop` turns a failure into an error and tells the other ranks.

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

/// The state of one operation that goes around the ring.
///
/// The caller owns the buffers and the links, and must pass the same ones to every call of [`advance`](Self::advance).
#[derive(Debug)]
pub(in crate::collective) struct RingExec {
    pub(super) steps: Schedule,
    /// The next step; `None` at the end.
    pub(super) step: Option<Step>,
    arithmetic: Arithmetic,
    pub(super) header: Header,
    /// Whether the header has still to be sent in a control message. Only a rank that puts no messages needs one.
    announce: bool,
    /// Whether the previous rank is known to be in the same operation: its header has been compared.
    agreed: bool,
    /// The numbers that earlier operations have used in each mailbox. Schedules number their messages from 0.
    sent_before: u64,
    received_before: u64,
    pub(super) started: Instant,
    /// When the last step was taken. The time since then is reported, and decides when a wait is announced.
    pub(super) progressed: Instant,
}

/// The links, engine and buffers that an executor works with. All are borrowed for one call of `advance`.
pub(super) struct ExecContext<'a, B> {
    pub(super) ring: &'a mut RingLinks,
    pub(super) host: Option<&'a HostGroup>,
    pub(super) core: &'a mut EngineState,
    pub(super) buffers: &'a mut B,
    pub(super) scratch: &'a mut Scratch,
}

impl RingExec {
    /// Makes the executor of `call` at `rank`, as operation `sequence` of the communicator.
    pub(super) fn new(
        ring: &RingLinks,
        (call, mut steps, arithmetic): (&Call, Schedule, Arithmetic),
        (rank, sequence): (u32, u64),
        started: Instant,
    ) -> Self {
        // Asked before the first step is taken. The header of a rank that puts messages goes in front of the first
        // one.
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

    /// Counts messages from here on: another executor has used the ring since this one was made.
    pub(super) fn follow(&mut self, ring: &RingLinks, now: Instant) {
        self.sent_before = ring.next.mailbox.sent();
        self.received_before = ring.previous.mailbox.given_back();
        self.progressed = now;
    }

    /// Continues the operation of an earlier executor. That one has exchanged the headers, so none is sent or
    /// expected.
    pub(super) fn go_on(&mut self, ring: &RingLinks, now: Instant) {
        self.follow(ring, now);
        (self.announce, self.agreed) = (false, true);
    }

    /// Takes every step that can be taken now, and reports what the operation waits for if it is not done.
    pub(super) fn advance<B: Buffers>(&mut self, with: &mut ExecContext<'_, B>) -> Poll<Result<(), Stop>> {
        match self.try_advance(with) {
            Ok(true) => Poll::Ready(check_strays(with.host, &self.header)),
            Ok(false) => {
                // A rank of this host may have chosen shared memory instead. Its message arrives in a window that no
                // step of this executor reads, so without this check both ranks would wait for each other.
                check_strays(with.host, &self.header)?;
                with.ring.wait(with.core, self.header.sequence, self.waits_for(), self.progressed);
                Poll::Pending
            }
            Err(stop) => Poll::Ready(Err(stop)),
        }
    }

    fn try_advance<B: Buffers>(&mut self, with: &mut ExecContext<'_, B>) -> Result<bool, Stop> {
        let taken = with.ring.take_arrivals(with.core);
        // The abort of another rank comes before any failure that this rank finds. A neighbour may have ended
        // *because* of that abort, and must not be blamed for it. For the same reason `taken` is checked only
        // afterwards.
        if let Some(abort) = with.ring.abort.filter(|abort| is_ended_by(&self.header, abort)) {
            return Err(Stop::Abort(abort));
        }
        taken.map_err(Stop::Lost)?;
        // Headers of later operations stay queued: the previous rank may be ahead when it only sends.
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
                // Checked only when a step cannot be taken. A peer that has sent all its messages and closed is fine
                // as long as those messages suffice.
                self.check_lanes(with.ring, with.core, step)?;
                return Ok(false);
            }
            self.step = self.steps.next();
            self.progressed = with.core.now();
        }
        // A rank that receives nothing still needs the header of the previous rank. Otherwise it would return success
        // from an operation in which the others have called something else.
        if self.announce || !self.is_agreed(with.ring, with.core)? {
            let wait = Step::WaitCount { from: with.ring.previous.rank, message: 0 };
            self.check_lanes(with.ring, with.core, wait)?;
            return Ok(false);
        }
        let next = &with.ring.next;
        if with.buffers.is_sent(with.core.lane(next.lane)) {
            return Ok(true);
        }
        // The device still reads buffers that were put, so they cannot go back to the caller yet. A peer that closed
        // in good order has received everything, so its acknowledgements are still on the way. Any other end is a
        // loss.
        match next.ended(with.core) {
            None | Some(Lost { cause: LaneFailure::Closed | LaneFailure::Fenced, .. }) => Ok(false),
            Some(lost) => Err(Stop::Lost(lost)),
        }
    }

    /// The neighbour that the operation waits for.
    pub(super) fn waits_for(&self) -> WaitingFor {
        WaitingFor::Neighbour(match self.step {
            Some(step) if waits_for_next(step) => Direction::Next,
            Some(_) => Direction::Previous,
            // The header has no room yet, or the device still reads buffers that were put.
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

    /// Compares a header of the previous rank with this rank's, or keeps it for the later operation that it belongs
    /// to.
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

    /// Whether the previous rank is in the same operation. The header in front of its first message is compared,
    /// unless a control message has brought one before.
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

    /// Takes one step; `false` if the step has to wait. A step that waits has changed nothing, and is taken again
    /// later.
    fn take<B: Buffers>(&mut self, with: &mut ExecContext<'_, B>, step: Step) -> Result<bool, Stop> {
        match step {
            Step::Put { message, source, span, .. } => Ok(self.put(with, message, source, span)),
            Step::WaitCount { message, .. } => {
                let number = self.received_before + message;
                // The headers are compared before the first byte is used. A message of another operation may have the
                // same length, and would be reduced into the output unnoticed.
                Ok(self.is_agreed(with.ring, with.core)?
                    && with.ring.previous.mailbox.arrived(number).is_some())
            }
            Step::ReduceFrom { message, span, last, target, .. } => {
                let number = self.check_length(with, message, span)?;
                let arithmetic = self.arithmetic;
                // The chunk is only passed on: it has no room in the output, and is reduced into the outgoing message.
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
        // The receiver knows a message by its number alone, so the schedule and the mailbox must count alike.
        debug_assert_eq!(next.mailbox.sent(), self.sent_before + message);
        let header = (message == 0).then(|| self.header.in_slot());
        if source == Source::Staged {
            return next.mailbox.put_staged(lane, header.as_ref());
        }
        // `last` asks the device for a completion, which tells of all earlier writes, too. `has_put_all` may miss the
        // last `Put` when empty chunks follow; `is_sent` then asks with a write of its own.
        let piece = Piece { source, span, last: self.steps.has_put_all() };
        with.buffers.put(&mut next.mailbox, lane, header.as_ref(), piece)
    }

    /// Checks the length of a message, and returns its number in the mailbox.
    ///
    /// Both ranks compute the length from the same schedule. A different one is a violation of the protocol, and
    /// reading on would use bytes that the peer did not write for this message.
    fn check_length<B>(&self, with: &mut ExecContext<'_, B>, message: u64, span: Span) -> Result<u64, Stop> {
        let number = self.received_before + message;
        let expected = span.len + if message == 0 { HEADER_BYTES } else { 0 };
        if with.ring.previous.mailbox.arrived(number) == Some(expected) {
            return Ok(number);
        }
        Err(wrong(with.ring, with.core, "a message of another length"))
    }

    /// Gives consumed slots back to the previous rank; `false` if there is no room to say so now.
    fn signal(&mut self, ring: &mut RingLinks, core: &mut EngineState, consumed: u64) -> bool {
        let previous = &mut ring.previous;
        let Some(lane) = core.lane(previous.lane) else { return false };
        // A rank that has closed sends nothing more. It needs no slots, and waiting for room on its lane would never
        // end.
        if lane.room() == 0 && !lane.is_closed() {
            return false;
        }
        // The room was checked first: slots that are given back here but never reported would be lost to the sender.
        let freed = previous.mailbox.give_back(self.received_before + consumed);
        if !lane.is_closed() {
            lane.note(freed);
        }
        true
    }

    /// Fails if `step`, which cannot be taken now, never will be.
    fn check_lanes(&self, ring: &RingLinks, core: &mut EngineState, step: Step) -> Result<(), Stop> {
        let waits_for_next = waits_for_next(step) || self.announce;
        let lost = at_fault(ring.ended(core), [waits_for_next, !waits_for_next]);
        lost.map_or(Ok(()), |lost| Err(Stop::Lost(lost)))
    }
}

/// Looks for headers of ranks on this host that are not in the operation of `ours`.
///
/// # Errors
///
/// A rank that has called another operation than `ours`, or than this rank called at that sequence number.
pub(super) fn check_strays(host: Option<&HostGroup>, ours: &Header) -> Result<(), Stop> {
    Ok(host.map_or(Ok(()), |host| host.check_strays(ours))?)
}

/// Sends the header to the next rank in a control message; `false` if there is no room for it now.
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

/// Whether `step` can be held up by the next rank.
///
/// A staged step takes a send buffer. The buffer comes back when the next rank's device has acknowledged its last use.
fn waits_for_next(step: Step) -> bool {
    match step {
        Step::Put { .. } => true,
        Step::ReduceFrom { target, .. } | Step::CopyFrom { target, .. } => target == Target::Staged,
        _ => false,
    }
}

/// Makes the next outgoing message from message `number`, which has arrived; `false` while no send buffer is free.
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
