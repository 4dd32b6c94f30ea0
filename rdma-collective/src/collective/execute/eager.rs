//! One operation of one rank in the windows of a host, by messages to all others at once and by pieces behind them: without the
//! engine while that is quick, and as a step of the engine from then on.

use std::task::Poll;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rdma_core::error::ReachError;
use rdma_core::memory::CacheHint;

use super::buffers::{Arithmetic, BufferAdvert, Buffers};
use super::header_exchange::{HeaderExchange, RankSet};
use super::pipeline::{Pipeline, PipelinePlan, ShmContext};
use super::plan::{ShmPlan, ShmProtocol};
use super::ring_exec::ExecContext;
use super::spin::{Polled, poll_brief, spin_then_yield};
use super::stop::{Progress, Stop};
use crate::collective::ReduceError;
use crate::collective::communicator::{HostGroup, RingLinks, Scratch, WaitingFor};
use crate::collective::eager_plan::{Copied, EagerPlan, Reduced};
use crate::collective::operation::Header;

/// How long the engine looks for the next piece when one has come, and for pieces that follow each other.
const LOOK_FOR: Duration = Duration::from_micros(20);
const GO_FOR: Duration = Duration::from_micros(200);
/// Bytes that are worth being reduced where they were left: of fewer the copy is sooner there than what is made tile by tile.
const IN_PLACE_BYTES_MIN: usize = 1024;
/// How long who begins an operation and does not wait for it yet is held up by others that have not come so far, at most.
const ROOM_WITHIN: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug)]
pub(in crate::collective) struct EagerExchange {
    content: Content,
    meeting: HeaderExchange,
    /// Whether the engine looks again at once.
    look_soon: bool,
    started: Instant,
}

/// What the messages have, or tell of.
#[derive(Debug)]
enum Content {
    Messages(EagerPlan, Arithmetic),
    Pipelined(Pipeline),
}

impl EagerExchange {
    /// Begins nothing yet: the exchange of a plan, as operation `sequence`.
    #[inline]
    pub(super) fn new(plan: &ShmPlan, sequence: u64, started: Instant) -> Self {
        let ShmPlan { header, others, needed, arithmetic, protocol } = *plan;
        let content = match protocol {
            ShmProtocol::Eager(plan) => Content::Messages(plan, arithmetic),
            ShmProtocol::Pipelined(plan) => Content::Pipelined(Pipeline::new(plan, arithmetic, others)),
        };
        let meeting = HeaderExchange::new(Header { sequence, ..header }, [others, needed], started);
        Self { content, meeting, look_soon: false, started }
    }

    /// Of ranks that have met, and told each other that they go on in pieces.
    pub(super) fn go_on<B: Buffers>(
        pieces: PipelinePlan,
        meeting: HeaderExchange,
        started: Instant,
        with: &mut ShmContext<'_, B>,
    ) -> Self {
        let arithmetic = pieces.call.arithmetic(pieces.ranks);
        let mut stage = Pipeline::new(pieces, arithmetic, RankSet::all_but(pieces.rank, pieces.ranks));
        stage.begin(with.host, with.buffers, with.scratch);
        Self { content: Content::Pipelined(stage), meeting, look_soon: false, started }
    }

    /// When it has begun, for who did not look at the clock before.
    #[inline]
    pub(super) fn begun_at(&mut self, started: Instant) {
        self.started = started;
        self.meeting.progressed = started;
    }

    /// Leaves a message for every other rank as soon as there is room for all; whether it has.
    ///
    /// # Errors
    ///
    /// A rank that was in another operation, or that this process may not: it was forked from the one that the others know.
    #[inline]
    pub(super) fn begin<B: Buffers>(
        &mut self,
        host: &HostGroup,
        buffers: &B,
        scratch: &mut Scratch,
    ) -> Result<bool, Stop> {
        if !self.meeting.begun {
            // A child would wait for room that its parent is given.
            host.check().map_err(Stop::Refused)?;
            if !self.meeting.look(host)? {
                return Ok(false);
            }
            self.meeting.begin(host);
            self.tell(host, buffers, scratch).map_err(Stop::Refused)?;
        }
        Ok(true)
    }

    /// The same, looking for room for as long as others take that come at once; whether it has begun.
    #[inline]
    pub(super) fn begin_soon<B: Buffers>(
        &mut self,
        host: &HostGroup,
        buffers: &B,
        scratch: &mut Scratch,
    ) -> bool {
        let mut look = || match self.begin(host, buffers, scratch) {
            Ok(true) => Polled::Done,
            Ok(false) => Polled::Nothing,
            Err(_) => Polled::Wrong,
        };
        match look() {
            Polled::Nothing => {
                let begun = spin_then_yield(host, Deadline::after(ROOM_WITHIN), || true, look);
                self.meeting.progressed = Instant::now();
                begun
            }
            looked => looked == Polled::Done,
        }
    }

    #[inline]
    fn tell<B: Buffers>(
        &mut self,
        host: &HostGroup,
        buffers: &B,
        scratch: &mut Scratch,
    ) -> Result<(), ReachError> {
        match &mut self.content {
            Content::Messages(exchange, _) => {
                for to in host.others() {
                    let span = exchange.sent(to);
                    // Nothing lies nowhere.
                    let message = if span.len > 0 { buffers.view(span, &mut scratch[0]) } else { &[] };
                    host.put(to, &self.meeting.header, message)?;
                }
            }
            Content::Pipelined(stage) => {
                stage.begin(host, buffers, scratch);
                // Ranks that own their memory ask where that of the others is.
                let told = BufferAdvert::BORROWED.encode();
                host.others().try_for_each(|to| host.put(to, &self.meeting.header, &told))?;
            }
        }
        Ok(())
    }

    /// Whether all has come: messages, and pieces behind them. Begins before, if it has not.
    ///
    /// # Errors
    ///
    /// As of [`begin`](Self::begin); a rank that is in another operation, or leaves what is none.
    #[inline]
    fn look<B: Buffers>(&mut self, with: &mut ShmContext<'_, B>) -> Result<bool, Stop> {
        if !self.begin(with.host, with.buffers, with.scratch)? {
            return Ok(false);
        }
        let met = self.meeting.look(with.host)?;
        match &mut self.content {
            Content::Pipelined(stage) if met => stage.go(with).map_err(Stop::Reduce),
            _ => Ok(met),
        }
    }

    /// How far it has come, in no unit.
    #[inline]
    fn way(&self) -> (bool, RankSet, u64) {
        let HeaderExchange { begun, missing, .. } = self.meeting;
        match &self.content {
            Content::Messages(..) => (begun, missing, 0),
            Content::Pipelined(stage) => (begun, missing, stage.step()),
        }
    }

    /// The ranks that it waits for.
    fn missing(&self) -> RankSet {
        match &self.content {
            Content::Pipelined(stage) if self.meeting.missing.is_empty() => stage.missing(),
            _ => self.meeting.missing,
        }
    }

    /// Whether it has all without a look.
    #[inline]
    fn needs_nothing(&self) -> bool {
        self.meeting.begun && self.meeting.missing.is_empty() && !self.is_in_pieces()
    }

    #[inline]
    fn is_in_pieces(&self) -> bool {
        matches!(self.content, Content::Pipelined(_))
    }

    /// Patience once; whether all has come. Not when something is none of this operation.
    pub(super) fn has_all<B: Buffers>(&mut self, with: &mut ShmContext<'_, B>) -> bool {
        self.look(with).unwrap_or(false)
    }

    /// The same, some times in a row.
    #[inline]
    pub(super) fn has_all_soon<B: Buffers>(&mut self, with: &mut ShmContext<'_, B>) -> bool {
        self.needs_nothing() || poll_brief(with.host, || self.has_all(with))
    }

    /// Patience for as long as messages take when their ranks are there, unless it goes on no more; whether all has come.
    #[inline]
    pub(super) fn hurry<B: Buffers>(
        &mut self,
        with: &mut ShmContext<'_, B>,
        deadline: Deadline,
        goes_on: impl FnMut() -> bool,
    ) -> bool {
        if self.needs_nothing() {
            // How soon others come is not known by that.
            return true;
        }
        let at_first = self.way();
        let done = spin_then_yield(with.host, deadline, goes_on, || {
            let before = self.is_in_pieces().then(|| self.way());
            match self.look(with) {
                Ok(true) => Polled::Done,
                Ok(false) if before.is_some_and(|before| self.way() != before) => Polled::Further,
                Ok(false) => Polled::Nothing,
                Err(_) => Polled::Wrong,
            }
        });
        if !done && self.way() != at_first {
            self.meeting.progressed = Instant::now();
        }
        done
    }

    /// Makes the output, once all messages have come.
    #[inline]
    pub(super) fn finish<B: Buffers>(
        &self,
        host: &HostGroup,
        buffers: &mut B,
        scratch: &mut Scratch,
    ) -> Result<(), ReduceError> {
        // A pipeline has written its pieces already.
        let Content::Messages(exchange, arithmetic) = &self.content else { return Ok(()) };
        for Copied { span, from } in exchange.copied() {
            if from == exchange.rank {
                buffers.copy(span, CacheHint::Cached);
            } else {
                buffers.write_in_pieces(span, CacheHint::Cached, scratch, |at, out, _| {
                    host.read(from, (at, span.len), out);
                });
            }
        }
        let mut at = ShmContext { host, buffers, scratch };
        for reduced in exchange.reduced() {
            reduce(exchange, *arithmetic, reduced, &mut at)?;
        }
        Ok(())
    }

    /// One look with the engine at hand, which knows what becomes of the others.
    pub(super) fn advance<B: Buffers>(
        &mut self,
        with: &mut ExecContext<'_, B>,
        host: &HostGroup,
    ) -> Poll<Result<(), Stop>> {
        match self.try_advance(with, host) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => {
                let (awaited, HeaderExchange { header, progressed, .. }) =
                    (self.waits_for(with.ring), self.meeting);
                with.ring.wait(with.core, header.sequence, awaited, progressed);
                Poll::Pending
            }
            Err(stop) => Poll::Ready(Err(stop)),
        }
    }

    fn try_advance<B: Buffers>(
        &mut self,
        with: &mut ExecContext<'_, B>,
        host: &HostGroup,
    ) -> Result<bool, Stop> {
        self.meeting.listen(with.ring, with.core, None)?;
        // Who has gone has left its messages before.
        let ended = with.ring.ended(with.core);
        let before = self.way();
        // Not before it has listened: messages of an operation that has failed would let others go on.
        if self.look_for_more(with, host)? {
            self.finish(host, with.buffers, with.scratch).map_err(Stop::Reduce)?;
            host.end_round();
            return Ok(true);
        }
        let further = self.way() != before;
        if further {
            self.meeting.progressed = with.core.now();
        }
        self.look_soon = further && self.is_in_pieces();
        self.missing().can_come(&self.meeting.header, with.ring, ended).map(|()| false)
    }

    /// Patience, and again for a while as long as pieces come: the next one is there before the engine looks again.
    fn look_for_more<B: Buffers>(
        &mut self,
        with: &mut ExecContext<'_, B>,
        host: &HostGroup,
    ) -> Result<bool, Stop> {
        let mut at = ShmContext { host, buffers: with.buffers, scratch: with.scratch };
        let (mut way, begun) = (self.way(), Instant::now());
        let mut until = begun;
        loop {
            if self.look(&mut at)? {
                return Ok(true);
            }
            let now = Instant::now();
            if self.is_in_pieces() && self.way() != way {
                way = self.way();
                until = (now + LOOK_FOR).min(begun + GO_FOR);
            }
            if now >= until {
                return Ok(false);
            }
            std::thread::yield_now();
        }
    }

    pub(super) fn waits_for(&self, ring: &RingLinks) -> WaitingFor {
        let awaited = match &self.content {
            Content::Pipelined(stage) if self.meeting.missing.is_empty() => stage.awaited(),
            _ => self.meeting.missing,
        };
        awaited.waits_for(ring)
    }

    /// When to look again after `now`, since messages wake nobody.
    pub(super) fn look_at(&self, now: Instant) -> Instant {
        if self.look_soon { now } else { self.meeting.look_at(now) }
    }

    pub(super) fn progress(&self) -> Progress {
        let HeaderExchange { header, progressed, missing, .. } = self.meeting;
        let bytes_outstanding = match &self.content {
            Content::Messages(exchange, _) => missing.iter().map(|rank| exchange.received(rank) as u64).sum(),
            Content::Pipelined(stage) => stage.outstanding(),
        };
        Progress { header, sequence: header.sequence, bytes_outstanding, started: self.started, progressed }
    }
}

/// Makes a range of the output of this rank's input and of all messages.
#[inline]
fn reduce<B: Buffers>(
    exchange: &EagerPlan,
    arithmetic: Arithmetic,
    Reduced { span, at, first }: Reduced,
    ShmContext { host, buffers, scratch: [all, one] }: &mut ShmContext<'_, B>,
) -> Result<(), ReduceError> {
    let EagerPlan { rank: own, ranks, .. } = *exchange;
    let message = |from| (at, exchange.received(from));
    let is_long = span.len >= IN_PLACE_BYTES_MIN && arithmetic.goes_by_tiles();
    // Of two operands it is all the same which one is first.
    if ranks == 2
        && is_long
        && let Some((out, input)) = buffers.slices(span)
    {
        let mut work = arithmetic.reduction().onto(&mut *out, input)?;
        host.work_on(1 - own, message(1 - own), span.len, &mut work);
        return arithmetic.finish(out, true);
    }
    let (all, one) = (&mut all[..span.len], &mut one[..span.len]);
    if ranks == 2 {
        host.read(1 - own, message(1 - own), one);
        return buffers.combine(span, one, all, arithmetic, true).map(|_| ());
    }
    if first == own {
        buffers.read(span, all);
    } else {
        host.read(first, message(first), all);
    }
    for from in (1..ranks).map(|step| (first + step) % ranks) {
        if from == own {
            arithmetic.reduce_into(all, buffers.view(span, one), false)?;
        } else if is_long {
            let mut work = arithmetic.reduction().onto(all, None)?;
            host.work_on(from, message(from), span.len, &mut work);
        } else {
            host.read(from, message(from), one);
            arithmetic.reduce_into(all, one, false)?;
        }
    }
    arithmetic.finish(all, true)?;
    buffers.write(span, all);
    Ok(())
}
