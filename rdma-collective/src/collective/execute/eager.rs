//! The executor of one operation in the windows of a host: an eager exchange, or the headers of a pipelined operation
//! and the [`Pipeline`] behind them.
//!
//! The caller's thread drives it first, without the engine, because most peers answer within microseconds. If they do
//! not, the engine takes it over and owns the deadline and the detection of failures. `header_exchange` owns the round
//! of messages, `pipeline` the pieces, and `spin` the time that the caller's thread spends on polling.

use std::task::Poll;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rdma_core::memory::CacheHint;

use super::buffers::{Arithmetic, BufferAdvert, Buffers};
use super::header_exchange::{HeaderExchange, RankSet};
use super::link_exec::ExecContext;
use super::pipeline::{Pipeline, PipelinePlan, ShmContext};
use super::plan::{ShmPlan, ShmProtocol};
use super::spin::{Polled, poll_brief, spin_then_yield};
use super::stop::{Progress, Stop};
use crate::collective::ReduceError;
use crate::collective::communicator::{HostGroup, Links, Scratch, WaitingFor};
use crate::collective::eager_plan::{Copied, EagerPlan, Reduced};
use crate::collective::operation::Header;

/// How long the engine polls for the next piece after one has arrived.
const LOOK_FOR: Duration = Duration::from_micros(20);
/// How long the engine polls in one step while pieces follow each other. The limit lets its other operations run.
const GO_FOR: Duration = Duration::from_micros(200);
/// Messages of at least so many bytes are reduced in the mailbox, without a copy. For shorter ones the copy is faster
/// than a reduction tile by tile.
const IN_PLACE_BYTES_MIN: usize = 1024;
/// The longest time for which a `start_…` call waits for room in the peers' mailboxes. The limit is short, because the
/// caller does not wait for the operation yet.
const ROOM_WITHIN: Duration = Duration::from_millis(1);

/// The executor of one operation in the windows of a host: eager, or pipelined.
#[derive(Debug)]
pub(in crate::collective) struct ShmExec {
    content: Content,
    headers: HeaderExchange,
    /// Whether the engine polls again at once, because pieces are arriving.
    look_soon: bool,
    started: Instant,
}

/// The protocol: messages carry the data themselves, or announce pieces.
#[derive(Debug)]
enum Content {
    Messages(EagerPlan, Arithmetic),
    Pipelined(Pipeline),
}

/// The position of an exchange: it changes whenever the operation makes progress.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Position {
    begun: bool,
    missing: RankSet,
    /// The next step of the pipeline; `None` if the messages carry the data themselves.
    step: Option<u64>,
}

impl Position {
    /// The position after all messages of an operation without pieces. A rank that only sends needs no message, so it
    /// is there without a poll.
    const COMPLETE: Self = Self { begun: true, missing: RankSet::EMPTY, step: None };
}

impl ShmExec {
    /// Creates the executor of a plan, as operation `sequence`. Nothing is sent yet.
    #[inline]
    pub(super) fn new(plan: &ShmPlan, sequence: u64, started: Instant) -> Self {
        let ShmPlan { header, others, needed, arithmetic, protocol } = *plan;
        let content = match protocol {
            ShmProtocol::Eager(plan) => Content::Messages(plan, arithmetic),
            ShmProtocol::Pipelined(plan) => Content::Pipelined(Pipeline::new(plan, arithmetic, others)),
        };
        let headers = HeaderExchange::new(Header { sequence, ..header }, [others, needed], started);
        Self { content, headers, look_soon: false, started }
    }

    /// Continues a zero-copy operation that fell back to pieces. All ranks have exchanged headers, and all know it.
    pub(super) fn after_fallback<B: Buffers>(
        plan: PipelinePlan,
        headers: HeaderExchange,
        started: Instant,
        with: &mut ShmContext<'_, B>,
    ) -> Self {
        let arithmetic = plan.call.arithmetic(plan.ranks);
        let mut pipeline = Pipeline::new(plan, arithmetic, RankSet::all_but(plan.rank, plan.ranks));
        // The headers are exchanged already, so the pipeline begins here and not in `begin`.
        pipeline.begin(with.host, with.buffers, with.scratch);
        Self { content: Content::Pipelined(pipeline), headers, look_soon: false, started }
    }

    /// Sets the time of the begin. The fast path reads the clock only after it has sent its messages.
    #[inline]
    pub(super) fn begun_at(&mut self, started: Instant) {
        self.started = started;
        self.headers.progressed = started;
    }

    /// The time of the begin.
    #[inline]
    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// Writes a message for every other rank once all mailboxes have room; returns whether it has.
    ///
    /// # Errors
    ///
    /// A rank was in another operation; or this process may not write to the windows, because it is a forked child of
    /// the process that joined.
    #[inline]
    pub(super) fn begin<B: Buffers>(
        &mut self,
        host: &HostGroup,
        buffers: &B,
        scratch: &mut Scratch,
    ) -> Result<bool, Stop> {
        if !self.headers.begun {
            // Until the round begins, the exchange takes the messages of earlier rounds: the `AHEAD` rule. Without
            // that a message could overwrite one that its receiver still reads.
            if !self.headers.look(host)? {
                return Ok(false);
            }
            self.headers.begin(host);
            match &mut self.content {
                Content::Messages(exchange, _) => {
                    for to in host.others() {
                        let span = exchange.sent(to);
                        // An empty span has no buffer behind it. The message is still sent, because its header counts.
                        let message = if span.len > 0 { buffers.view(span, &mut scratch[0]) } else { &[] };
                        host.put(to, &self.headers.header, message).map_err(Stop::Refused)?;
                    }
                }
                Content::Pipelined(pipeline) => {
                    // Units before headers, so that a peer which has all headers finds the first pieces, too.
                    pipeline.begin(host, buffers, scratch);
                    // A peer with registered buffers runs the zero-copy protocol and reads an advert here. "Borrowed"
                    // makes it fall back to the same pieces.
                    let advert = BufferAdvert::BORROWED.encode();
                    for to in host.others() {
                        host.put(to, &self.headers.header, &advert).map_err(Stop::Refused)?;
                    }
                }
            }
        }
        Ok(true)
    }

    /// Like [`begin`](Self::begin), but polls for room for up to `ROOM_WITHIN`; returns whether it has begun.
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
        // Look once before spinning: room is the common case, and needs no clock.
        match look() {
            Polled::Nothing => {
                let begun = spin_then_yield(host, Deadline::after(ROOM_WITHIN), || true, look);
                self.headers.progressed = Instant::now();
                begun
            }
            looked => looked == Polled::Done,
        }
    }

    /// Polls once; returns whether all messages, and all pieces behind them, have arrived. Begins the operation if it
    /// has not begun.
    ///
    /// # Errors
    ///
    /// All errors of [`begin`](Self::begin); or a rank is in another operation, or has sent a damaged header.
    #[inline]
    fn look<B: Buffers>(&mut self, with: &mut ShmContext<'_, B>) -> Result<bool, Stop> {
        if !self.begin(with.host, with.buffers, with.scratch)? {
            return Ok(false);
        }
        // Headers before pieces: a rank that has called something else must not have its units read.
        let all = self.headers.look(with.host)?;
        match &mut self.content {
            Content::Pipelined(pipeline) if all => pipeline.go(with).map_err(Stop::Reduce),
            _ => Ok(all),
        }
    }

    #[inline]
    fn position(&self) -> Position {
        let HeaderExchange { begun, missing, .. } = self.headers;
        let step = match &self.content {
            Content::Messages(..) => None,
            Content::Pipelined(pipeline) => Some(pipeline.next_step),
        };
        Position { begun, missing, step }
    }

    /// The ranks that the operation waits for.
    fn missing(&self) -> RankSet {
        match &self.content {
            Content::Pipelined(pipeline) if self.headers.missing.is_empty() => pipeline.missing(),
            _ => self.headers.missing,
        }
    }

    /// Polls once; returns whether all has arrived. `false` also for a message of another operation: the engine polls
    /// again, finds it and reports it.
    pub(super) fn has_arrived<B: Buffers>(&mut self, with: &mut ShmContext<'_, B>) -> bool {
        self.look(with).unwrap_or(false)
    }

    /// Like [`has_arrived`](Self::has_arrived), but polls a few times in a row.
    #[inline]
    pub(super) fn has_arrived_soon<B: Buffers>(&mut self, with: &mut ShmContext<'_, B>) -> bool {
        self.position() == Position::COMPLETE || poll_brief(with.host, || self.has_arrived(with))
    }

    /// Spins, then yields, until all has arrived; returns whether it has. Gives up when the peers are not there, at
    /// `deadline`, and when `goes_on` turns false.
    #[inline]
    pub(super) fn spin_until_arrived<B: Buffers>(
        &mut self,
        with: &mut ShmContext<'_, B>,
        deadline: Deadline,
        goes_on: impl FnMut() -> bool,
    ) -> bool {
        let at_first = self.position();
        if at_first == Position::COMPLETE {
            // Return before the spin, because this tells nothing about how soon peers answer. Spinning "with success"
            // would mark them as prompt.
            return true;
        }
        let done = spin_then_yield(with.host, deadline, goes_on, || {
            // Only pieces count as progress that restarts the spin. A message of one peer says nothing about the
            // next peer, so without pieces the wait stays bounded.
            let before = self.position();
            match self.look(with) {
                Ok(true) => Polled::Done,
                Ok(false) if before.step.is_some() && self.position() != before => Polled::Further,
                Ok(false) => Polled::Nothing,
                Err(_) => Polled::Wrong,
            }
        });
        if !done && self.position() != at_first {
            self.headers.progressed = Instant::now();
        }
        done
    }

    /// Computes the output once all messages have arrived.
    #[inline]
    pub(super) fn finish<B: Buffers>(
        &self,
        host: &HostGroup,
        buffers: &mut B,
        scratch: &mut Scratch,
    ) -> Result<(), ReduceError> {
        // The pipeline has written the output piece by piece, so nothing is left to do.
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

    /// Runs one step on the engine. Unlike the caller's thread, the engine knows which peers have failed.
    pub(super) fn advance<B: Buffers>(
        &mut self,
        with: &mut ExecContext<'_, B>,
        host: &HostGroup,
    ) -> Poll<Result<(), Stop>> {
        match self.try_advance(with, host) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => {
                let (awaited, HeaderExchange { header, progressed, .. }) =
                    (self.waits_for(with.links), self.headers);
                with.links.wait(with.core, (header.sequence, header), awaited, progressed);
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
        self.headers.listen(with.links, with.core, None)?;
        // Sample `ended` **before** polling: a rank writes its messages before it exits, so this order cannot miss one.
        let ended = with.links.ended(with.core);
        let before = self.position();
        // Poll only after `listen`. Polling may begin the operation, and messages of one that has failed would let
        // peers go on as if this rank took part.
        if self.look_for_more(with, host)? {
            self.finish(host, with.buffers, with.scratch).map_err(Stop::Reduce)?;
            host.end_round();
            return Ok(true);
        }
        let further = self.position() != before;
        if further {
            self.headers.progressed = with.core.now();
        }
        self.look_soon = further && before.step.is_some();
        self.missing().can_come(&self.headers.header, with.links, ended).map(|()| false)
    }

    /// Polls, and polls on for a while as long as pieces arrive, because the next piece is there before the engine's
    /// next step.
    fn look_for_more<B: Buffers>(
        &mut self,
        with: &mut ExecContext<'_, B>,
        host: &HostGroup,
    ) -> Result<bool, Stop> {
        let mut at = ShmContext { host, buffers: with.buffers, scratch: with.scratch };
        let (mut before, begun) = (self.position(), Instant::now());
        let mut until = begun;
        loop {
            if self.look(&mut at)? {
                return Ok(true);
            }
            // The engine's time stands still within a step, so read the clock itself.
            let now = Instant::now();
            let position = self.position();
            if position.step.is_some() && position != before {
                before = position;
                until = (now + LOOK_FOR).min(begun + GO_FOR);
            }
            if now >= until {
                return Ok(false);
            }
            // The peer that fills the next piece may need this core.
            std::thread::yield_now();
        }
    }

    pub(super) fn waits_for(&self, links: &Links) -> WaitingFor {
        let awaited = match &self.content {
            Content::Pipelined(pipeline) if self.headers.missing.is_empty() => pipeline.awaited(),
            _ => self.headers.missing,
        };
        awaited.waits_for(links)
    }

    /// The time of the next poll after `now`. Messages in windows raise no completion, so only polling finds them.
    pub(super) fn look_at(&self, now: Instant) -> Instant {
        if self.look_soon { now } else { self.headers.look_at(now) }
    }

    pub(super) fn progress(&self) -> Progress {
        let HeaderExchange { header, progressed, missing, .. } = self.headers;
        let bytes_outstanding = match &self.content {
            Content::Messages(exchange, _) => missing.iter().map(|rank| exchange.received(rank) as u64).sum(),
            Content::Pipelined(pipeline) => pipeline.outstanding(),
        };
        Progress { header, sequence: header.sequence, bytes_outstanding, started: self.started, progressed }
    }
}

/// Reduces a range of the output from this rank's input and from all messages.
#[inline]
fn reduce<B: Buffers>(
    exchange: &EagerPlan,
    arithmetic: Arithmetic,
    Reduced { span, at, first }: Reduced,
    ShmContext { host, buffers, scratch: [all, one] }: &mut ShmContext<'_, B>,
) -> Result<(), ReduceError> {
    let EagerPlan { rank: own, ranks, .. } = *exchange;
    let message = |from| (at, exchange.received(from));
    let is_long = span.len >= IN_PLACE_BYTES_MIN && arithmetic.by_tiles;
    // With two ranks the order of the operands does not change the result, so the peer's message is reduced straight
    // into the output.
    if ranks == 2
        && is_long
        && let Some((out, input)) = buffers.slices(span)
    {
        let mut work = arithmetic.reduction.onto(&mut *out, input)?;
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
    // Around the ring from `first`: every algorithm adds in this order, so the bits do not depend on the algorithm.
    for from in (1..ranks).map(|step| (first + step) % ranks) {
        if from == own {
            arithmetic.reduce_into(all, buffers.view(span, one), false)?;
        } else if is_long {
            let mut work = arithmetic.reduction.onto(all, None)?;
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
