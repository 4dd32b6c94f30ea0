//! The executor over links: carries out any schedule, around the ring or between any ranks, and sends and receives.
//!
//! The schedule decides which step comes next. This file decides when an operation goes on, and when it never will.
//! `strand` holds the steps that follow each other, `step` takes one step, `memory` resolves the extents of a step,
//! `agreement` finds ranks that have called something else, and `linking` makes the links if this is the first
//! operation that needs them. `stop` turns a failure into an error and tells the other ranks.

mod agreement;
mod linking;
mod memory;
mod step;
mod strand;

use std::iter::once;
use std::mem;
use std::task::Poll;
use std::time::Instant;

use super::buffers::Buffers;
use super::plan::{LinkPlan, Plan};
use super::stop::{Progress, Stop, is_ended_by};
use crate::collective::call::is_of_two;
use crate::collective::communicator::{HostGroup, Links, Reach, Scratch, WaitingFor, at_fault};
use crate::collective::operation::Header;
use crate::collective::schedule::{Buffer, Step};
use crate::collective::send_recv_set::SendRecvSet;
use crate::engine::EngineState;

use self::agreement::check_strays;
use self::linking::Linking;
pub(super) use self::memory::copy;
pub(super) use self::step::buffers_at;
use self::strand::Strand;

/// Bytes of a rank up to which an operation takes some 100 us, as a thread's wake-up and what it disturbs do.
const SHORT_BYTES: u64 = 64 << 10;

/// The state of one operation over links.
///
/// The caller owns the buffers and the links, and must pass the same ones to every call of [`advance`](Self::advance).
#[derive(Debug)]
pub(in crate::collective) struct LinkExec {
    /// The steps of a collective; of sends and receives the strand that reports name, which has steps left if any has.
    strand: Strand,
    /// The other strands of sends and receives. Each goes on as its link allows, independent of the others: two ranks
    /// that list their transfers in different orders would otherwise wait for each other.
    others: Vec<Strand>,
    reach: Reach,
    /// The number of the operation among those of all ranks. Sends and receives have none, because only two ranks take
    /// part in each. They run before the next collective, and this is its number.
    sequence: u64,
    phase: Phase,
    /// Whether the header has still to be sent to the next rank of the ring in a control message.
    announce: bool,
    /// Whether the previous rank of the ring is known to be in the same operation, or need not be.
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
    /// The buffers of the further transfers of a group, where each transfer has its own.
    pub(super) more: &'a mut [B],
    pub(super) scratch: &'a mut Scratch,
}

impl LinkExec {
    /// Makes the executor of `over`, by which `plan` goes, at `rank` as operation `sequence`.
    pub(super) fn new(plan: &Plan, over: &LinkPlan, (rank, sequence): (u32, u64), started: Instant) -> Self {
        let LinkPlan { steps, reach, connect, .. } = over;
        let linking = connect.as_deref().map(|with| {
            let part = |over: &LinkPlan| Self::new(plan, over, (rank, sequence), started);
            Box::new(Linking::new(*reach, with.words.each_ref().map(part), with.instead.as_ref().map(part)))
        });
        Self {
            // Asked before the first step is taken.
            announce: steps.announces(),
            agreed: false,
            strand: Strand::new(steps.clone(), plan.call.header(rank, sequence), plan.arithmetic),
            others: Vec::new(),
            reach: *reach,
            sequence,
            phase: Phase::Begin(linking),
            started,
            progressed: started,
        }
    }

    /// Whether the operation takes less time than a wake-up of the engine's thread is worth.
    pub(super) fn is_short(&self) -> bool {
        self.strand.header.count.saturating_mul(self.strand.arithmetic.element as u64) <= SHORT_BYTES
    }

    /// Makes the executor of sends and receives at `rank`, before collective `sequence`; `None` if there are none.
    pub(super) fn of_set(
        plan: &Plan,
        set: &SendRecvSet,
        (rank, sequence): (u32, u64),
        started: Instant,
    ) -> Option<Self> {
        let mut strands =
            set.strands.values().filter_map(|points| Strand::of(points.clone(), rank, plan.arithmetic));
        Some(Self {
            strand: strands.next()?,
            others: strands.collect(),
            reach: if set.peer().is_some() { Reach::All } else { Reach::default() },
            sequence,
            phase: Phase::Begin(None),
            // Each pair of ranks compares the headers of its own transfers.
            announce: false,
            agreed: true,
            started,
            progressed: started,
        })
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
                        // All ranks have found meanwhile that the links cannot be made, so no peer waits for a message
                        // of this rank. None may be sent, and no transfer counted.
                        None if missing => return Poll::Ready(Err(Stop::Unconnected(self.peer()))),
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
    fn begin_steps(&mut self, links: &mut Links) -> Phase {
        links.table.begin(self.strand.steps.scratch_bytes());
        if !is_of_two(&self.strand.header) {
            links.called.keep(self.strand.header);
        }
        once(&mut self.strand).chain(&mut self.others).for_each(|strand| strand.begin(links));
        Phase::Steps
    }

    /// The first rank with which this one exchanges messages.
    fn peer(&self) -> u32 {
        once(&self.strand).chain(&self.others).find_map(Strand::peer).unwrap_or(self.strand.header.rank)
    }

    fn advance_steps<B: Buffers>(&mut self, with: &mut ExecContext<'_, B>) -> Poll<Result<(), Stop>> {
        // Taken out for the time of the call, because a step borrows a link and the scratch of the same table.
        let mut scratch = mem::take(&mut with.links.table.scratch);
        let outcome = self.try_advance(with, &mut scratch);
        with.links.table.scratch = scratch;
        match outcome {
            Ok(true) => Poll::Ready(check_strays(with.host, &self.strand.header)),
            Ok(false) => {
                // A rank of this host may have chosen shared memory instead. Its message arrives in a window that no
                // step of this executor reads, so without this check both ranks would wait for each other.
                check_strays(with.host, &self.strand.header)?;
                let awaited = WaitingFor::Rank(self.awaited(with.links, with.core));
                let operation = (self.sequence, self.strand.header);
                with.links.wait(with.core, operation, awaited, self.progressed);
                Poll::Pending
            }
            Err(stop) => {
                // A rank that has called something else explains why it has left.
                if let Stop::Lost(_) = stop {
                    check_strays(with.host, &self.strand.header)?;
                }
                Poll::Ready(Err(stop))
            }
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
        let header = Header { sequence: self.sequence, ..self.strand.header };
        if let Some(abort) = with.links.abort.filter(|abort| is_ended_by(&header, abort)) {
            return Err(Stop::Abort(abort));
        }
        taken.map_err(Stop::Lost)?;
        self.hear_previous(with.links)?;
        if self.announce {
            self.announce = !self.send_header(with.links, with.core)?;
        }
        if !self.take_steps(with, scratch)? {
            self.check_links(with.links, with.core, true)?;
            return Ok(false);
        }
        // Where messages leave ranks apart, a rank needs the header of the previous one. Otherwise it would return
        // success from an operation in which the others have called something else, and nobody would ever find it.
        let announced = !self.announce && self.is_agreed_with_previous(with.links, with.core)?;
        with.links.table.ask_for_ranges(with.core);
        if announced && with.links.table.unsent(with.core).is_none() {
            self.check_first_messages(with.links)?;
            return Ok(true);
        }
        self.check_links(with.links, with.core, !announced)?;
        Ok(false)
    }

    /// Takes the steps of all strands as far as they go now, and returns whether none is left.
    fn take_steps<B: Buffers>(
        &mut self,
        with: &mut ExecContext<'_, B>,
        scratch: &mut [u8],
    ) -> Result<bool, Stop> {
        self.strand.advance(with, scratch, &mut self.progressed)?;
        for other in &mut self.others {
            if let Err(stop) = other.advance(with, scratch, &mut self.progressed) {
                // The report must name the transfer that failed, not one that waits.
                mem::swap(&mut self.strand, other);
                return Err(stop);
            }
        }
        if self.strand.step.is_none()
            && let Some(other) = self.others.iter_mut().find(|other| other.step.is_some())
        {
            mem::swap(&mut self.strand, other);
        }
        Ok(self.strand.step.is_none())
    }

    /// Fails if the operation can never go on. `waits` says whether it waits for a peer; that peer must not even have
    /// closed in good order.
    ///
    /// Called only when the operation cannot go on now: a peer that has sent all its messages and closed is fine as
    /// long as those messages suffice.
    fn check_links(&mut self, links: &Links, core: &mut EngineState, waits: bool) -> Result<(), Stop> {
        self.check_first_messages(links)?;
        let awaited = self.awaited(links, core);
        let waits_for = |rank| rank == awaited || self.others.iter().any(|other| other.peer() == Some(rank));
        let Some(lost) = at_fault(links.table.ended(core), |rank| waits && waits_for(rank)) else {
            return Ok(());
        };
        if lost.rank != awaited
            && let Some(other) = self.others.iter_mut().find(|other| other.peer() == Some(lost.rank))
        {
            mem::swap(&mut self.strand, other);
        }
        Err(Stop::Lost(lost))
    }

    /// The rank that the operation waits for.
    fn awaited(&self, links: &Links, core: &mut EngineState) -> u32 {
        if let Some(step) = self.strand.step {
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
        match links.table.unsent(core) {
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
        let strands = once(&self.strand).chain(&self.others);
        let bytes_outstanding = strands.map(Strand::bytes_outstanding).sum();
        let Self { strand: Strand { header, .. }, sequence, started, .. } = *self;
        let progressed = match &self.phase {
            Phase::Linking(linking) => linking.progressed(),
            _ => self.progressed,
        };
        Progress { header, sequence, bytes_outstanding, started, progressed }
    }
}

#[cfg(test)]
mod tests;
