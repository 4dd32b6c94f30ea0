//! The executor over links: carries out any schedule, around the ring or between any ranks.
//!
//! The schedule decides which step comes next. This file decides when an operation goes on, and when it never will;
//! `step` takes one step, `memory` resolves the extents of a step, and `linking` makes the links if this is the first
//! operation that needs them. `stop` turns a failure into an error and tells the other ranks.

mod linking;
mod memory;
mod step;

use std::task::Poll;
use std::time::Instant;

use super::buffers::{Arithmetic, Buffers};
use super::plan::{LinkPlan, Plan};
use super::stop::{Progress, Stop, is_ended_by};
use crate::collective::call::is_of_two;
use crate::collective::communicator::{HostGroup, Link, Links, Reach, Scratch, WaitingFor, at_fault};
use crate::collective::operation::{DAMAGED, Header, OPERATION};
use crate::collective::schedule::{Buffer, Schedule, Share, Span, Step};
use crate::engine::EngineState;

use self::linking::Linking;
pub(super) use self::memory::copy;
pub(super) use self::step::{check_length, put_range, signal, unsent};

/// Bytes of a rank up to which an operation takes some 100 us, as a thread's wake-up and what it disturbs do.
const SHORT_BYTES: u64 = 64 << 10;

/// The state of one operation over links.
///
/// The caller owns the buffers and the links, and must pass the same ones to every call of [`advance`](Self::advance).
#[derive(Debug)]
pub(in crate::collective) struct LinkExec {
    steps: Schedule,
    /// The next step; `None` at the end.
    step: Option<Step>,
    reach: Reach,
    arithmetic: Arithmetic,
    header: Header,
    phase: Phase,
    /// Whether the header has still to be sent to the next rank of the ring in a control message.
    announce: bool,
    /// Whether the previous rank of the ring is known to be in the same operation.
    agreed: bool,
    started: Instant,
    /// When the last step was taken. The time since then is reported, and decides when a wait is announced.
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
    Around(Box<LinkExec>),
}

/// The links, engine and buffers that an executor works with. All are borrowed for one call of `advance`.
pub(super) struct ExecContext<'a, B> {
    pub(super) links: &'a mut Links,
    pub(super) host: Option<&'a HostGroup>,
    pub(super) core: &'a mut EngineState,
    pub(super) buffers: &'a mut B,
    pub(super) scratch: &'a mut Scratch,
}

impl LinkExec {
    /// Makes the executor of `plan` at `rank`, as operation `sequence`.
    pub(super) fn new(
        plan: &Plan,
        LinkPlan { steps, reach, connect, .. }: &LinkPlan,
        (rank, sequence): (u32, u64),
        started: Instant,
    ) -> Self {
        let around = |steps: &Schedule| Self::around(plan, steps, (rank, sequence), started);
        let linking = connect.as_deref().map(|with| {
            let words = with.words.each_ref().map(around);
            Box::new(Linking::new(*reach, words, with.instead.as_ref().map(around)))
        });
        Self { reach: *reach, phase: Phase::Begin(linking), ..around(steps) }
    }

    /// Makes the executor of a schedule that needs no links but those of the ring.
    pub(super) fn around(
        plan: &Plan,
        steps: &Schedule,
        (rank, sequence): (u32, u64),
        started: Instant,
    ) -> Self {
        let mut steps = steps.clone();
        // Asked before the first step is taken.
        let announce = steps.announces();
        let step = steps.next();
        Self {
            steps,
            step,
            reach: Reach::default(),
            arithmetic: plan.arithmetic,
            header: plan.call.header(rank, sequence),
            phase: Phase::Begin(None),
            announce,
            agreed: false,
            started,
            progressed: started,
        }
    }

    /// Whether the operation takes less time than a wake-up of the engine's thread is worth.
    pub(super) fn is_short(&self) -> bool {
        self.header.count.saturating_mul(self.arithmetic.element as u64) <= SHORT_BYTES
    }

    /// Continues the operation of an earlier executor. That one has exchanged the headers, so none is announced or
    /// expected around the ring.
    fn go_on(&mut self, now: Instant) {
        (self.announce, self.agreed, self.progressed) = (false, true, now);
    }

    /// Takes every step that can be taken now, and reports what the operation waits for if it is not done.
    pub(super) fn advance<B: Buffers>(&mut self, with: &mut ExecContext<'_, B>) -> Poll<Result<(), Stop>> {
        loop {
            match &mut self.phase {
                Phase::Begin(linking) => {
                    // Asked now and not when the operation was planned: one before it in the queue may have made the
                    // links.
                    let missing = with.links.table.reach() < self.reach;
                    self.phase = match linking.take().filter(|_| missing) {
                        Some(linking) => Phase::Linking(linking),
                        None => self.begin_steps(with.links),
                    };
                }
                Phase::Linking(linking) => {
                    let Poll::Ready(linked) = linking.advance(with)? else { return Poll::Pending };
                    self.phase = match linked {
                        Ok(()) => {
                            // The gathered words went around the ring with the headers of this operation.
                            self.go_on(with.core.now());
                            self.begin_steps(with.links)
                        }
                        Err(around) => Phase::Around(around),
                    };
                }
                Phase::Steps => return self.advance_steps(with),
                Phase::Around(around) => return around.advance(with),
            }
        }
    }

    /// Counts messages from here on, and makes room for the schedule's scratch.
    fn begin_steps(&self, links: &mut Links) -> Phase {
        links.table.begin(self.steps.scratch_bytes());
        Phase::Steps
    }

    fn advance_steps<B: Buffers>(&mut self, with: &mut ExecContext<'_, B>) -> Poll<Result<(), Stop>> {
        // Taken out for the time of the call, because a step borrows a link and the scratch of the same table.
        let mut scratch = std::mem::take(&mut with.links.table.scratch);
        let outcome = self.try_advance(with, &mut scratch);
        with.links.table.scratch = scratch;
        match outcome {
            Ok(true) => Poll::Ready(check_strays(with.host, &self.header)),
            Ok(false) => {
                // A rank of this host may have chosen shared memory instead. Its message arrives in a window that no
                // step of this executor reads, so without this check both ranks would wait for each other.
                check_strays(with.host, &self.header)?;
                let awaited = WaitingFor::Rank(self.awaited(with.links, with.core));
                with.links.wait(with.core, self.header.sequence, awaited, self.progressed);
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
        let taken = with.links.take_arrivals(with.core);
        // The abort of another rank comes before any failure that this rank finds. A peer may have ended *because* of
        // that abort, and must not be blamed for it. For the same reason `taken` is checked only afterwards.
        if let Some(abort) = with.links.abort.filter(|abort| is_ended_by(&self.header, abort)) {
            return Err(Stop::Abort(abort));
        }
        taken.map_err(Stop::Lost)?;
        self.hear_previous(with.links)?;
        if self.announce {
            self.announce = !self.send_header(with.links, with.core)?;
        }
        while let Some(step) = self.step {
            if !self.take(with, scratch, step)? {
                self.check_links(with.links, with.core, true)?;
                return Ok(false);
            }
            self.step = self.steps.next();
            self.progressed = with.core.now();
        }
        // A rank that receives nothing still needs the header of the previous rank. Otherwise it would return success
        // from an operation in which the others have called something else.
        let announced = !self.announce && self.is_agreed_with_previous(with.links, with.core)?;
        step::confirm(with.links, with.core);
        if announced && unsent(with.links, with.core).is_none() {
            return Ok(true);
        }
        self.check_links(with.links, with.core, !announced)?;
        Ok(false)
    }

    /// Compares the headers that the previous rank of the ring has sent in control messages. Those of later operations
    /// stay queued: the previous rank may be ahead when it only sends.
    fn hear_previous(&mut self, links: &mut Links) -> Result<(), Stop> {
        while let Some(theirs) = links.ahead.front().copied()
            && theirs.sequence <= self.header.sequence
        {
            links.ahead.pop_front();
            if !self.header.agrees(&theirs) {
                return Err(Stop::Mismatch { ours: self.header, theirs });
            }
            self.agreed = true;
        }
        links.beyond.map_or(Ok(()), |theirs| Err(Stop::Mismatch { ours: self.header, theirs }))
    }

    /// Sends the header to the next rank in a control message; `false` if there is no room for it now.
    fn send_header(&self, links: &Links, core: &mut EngineState) -> Result<bool, Stop> {
        let Some(lane) = links.table.link(links.next).and_then(|link| core.lane(link.lane)) else {
            return Ok(false);
        };
        let sent = lane.control(OPERATION, |body| self.header.write(body));
        sent.map_err(|_| {
            let what = "control messages too short for a header";
            Stop::Lost(links.violation_of(core, links.next, what))
        })
    }

    /// Whether the previous rank of the ring is in the same operation, as far as its header tells: in a control message
    /// or, in an operation around the ring, in front of its first message.
    fn is_agreed_with_previous(&mut self, links: &mut Links, core: &mut EngineState) -> Result<bool, Stop> {
        if !self.agreed
            && !self.steps.is_in_rounds()
            && let Some(previous) = links.table.link_mut(links.previous)
        {
            self.agreed = self.is_agreed(previous, core)?;
        }
        Ok(self.agreed)
    }

    /// Whether the peer is in the same operation. The header in front of its first message is compared.
    fn is_agreed(&self, link: &mut Link, core: &mut EngineState) -> Result<bool, Stop> {
        let Link { inbox, received_before, agreed, .. } = link;
        if !*agreed && inbox.arrived(*received_before).is_some() {
            let expected = self.header_on(link.rank, |share| share.received);
            match Header::read(&inbox.header(*received_before)) {
                Ok(theirs) if expected.agrees(&theirs) => *agreed = true,
                // Only the counts differ: the callers' uneven parts do not match, which has an error of its own.
                Ok(theirs) if self.is_of_another_length(&theirs) => {
                    return Err(Stop::Counts { theirs, expected: expected.count });
                }
                Ok(theirs) => return Err(Stop::Mismatch { ours: self.header, theirs }),
                Err(_) => return Err(Stop::Lost(link.violation(core, DAMAGED))),
            }
        }
        Ok(link.agreed)
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

    /// Fails if the operation can never go on. `waits` says whether it waits for a peer; that peer must not even have
    /// closed in good order.
    ///
    /// Called only when the operation cannot go on now: a peer that has sent all its messages and closed is fine as
    /// long as those messages suffice.
    fn check_links(&self, links: &Links, core: &mut EngineState, waits: bool) -> Result<(), Stop> {
        self.check_first_messages(links)?;
        let awaited = self.awaited(links, core);
        let lost = at_fault(links.table.ended(core), |rank| waits && rank == awaited);
        lost.map_or(Ok(()), |lost| Err(Stop::Lost(lost)))
    }

    /// Fails if a rank whose message no step reads has called something else.
    ///
    /// A rank with another operation may wait for this one, and this one for a third, so that nobody else would find
    /// the mismatch.
    fn check_first_messages(&self, links: &Links) -> Result<(), Stop> {
        for link in links.table.links().filter(|link| !link.agreed) {
            let header =
                link.inbox.arrived(link.received_before).map(|_| link.inbox.header(link.received_before));
            // A damaged header is found by the step that reads the message.
            let Some(Ok(theirs)) = header.map(|header| Header::read(&header)) else { continue };
            // Without the count, because parts may be uneven, and a rank that has made its links sends its parts while
            // this one still makes links. The step that reads the message compares the count.
            let agrees = self.header.agrees(&Header { count: self.header.count, ..theirs });
            // The message of a send waits for its receive, which comes after this operation.
            if theirs.sequence <= self.header.sequence && !agrees && !is_of_two(&theirs) {
                return Err(Stop::Mismatch { ours: self.header, theirs });
            }
        }
        Ok(())
    }

    /// The rank that the operation waits for.
    fn awaited(&self, links: &Links, core: &mut EngineState) -> u32 {
        if let Some(step) = self.step {
            let staged = match step {
                // The send buffer comes back when the next rank's device has acknowledged its last use.
                Step::ReduceFrom { target, .. } | Step::CopyFrom { target, .. } => match target.buffer() {
                    Buffer::Outgoing(to) => Some(to),
                    _ => None,
                },
                _ => None,
            };
            return staged.or(step.peer()).unwrap_or(links.previous);
        }
        // No step is left. The headers come before the unsent messages, because a rank that has called something else
        // explains both.
        match unsent(links, core) {
            _ if self.announce => links.next,
            Some(rank) if self.agreed => rank,
            _ => links.previous,
        }
    }

    /// The rank that the operation waits for, in whichever phase.
    pub(super) fn waits_for(&self, links: &Links, core: &mut EngineState) -> WaitingFor {
        match &self.phase {
            Phase::Linking(linking) => linking.waits_for(links, core),
            Phase::Around(around) => around.waits_for(links, core),
            _ => WaitingFor::Rank(self.awaited(links, core)),
        }
    }

    pub(super) fn progress(&self) -> Progress {
        if let Phase::Around(around) = &self.phase {
            return around.progress();
        }
        let rest = self.step.into_iter().chain(self.steps.clone());
        let bytes_outstanding = rest.map(|step| step.used() as u64).sum();
        let Self { header, started, .. } = *self;
        let progressed = match &self.phase {
            Phase::Linking(linking) => linking.progressed(),
            _ => self.progressed,
        };
        Progress { header, sequence: header.sequence, bytes_outstanding, started, progressed }
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

#[cfg(test)]
mod tests;
