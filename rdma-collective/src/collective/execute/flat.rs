//! One operation of one rank by messages to all others at once: without the engine while that is quick, and as a step of the
//! engine from then on.

use std::task::Poll;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rdma_core::error::ReachError;

use super::buffers::{Arithmetic, Buffers};
use super::give_up::Progress;
use super::hurry::{Looked, hurry};
use super::run::{DAMAGED, Stop, With, is_ended_by, is_found_here, wrong};
use super::stage::{At, Stage};
use crate::collective::exchange::{Exchange, Made};
use crate::collective::schedule::Span;
use crate::comm::operation::{Abort, Header};
use crate::comm::{Awaited, Core, Direction, HostGroup, RingLinks, Scratch, at_fault};
use crate::error::{AbortReason, ReduceError};

/// Between two looks of the engine.
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(1);
/// How long the engine looks for the next piece when one has come, and for pieces that follow each other.
const LOOK_FOR: Duration = Duration::from_micros(20);
const GO_FOR: Duration = Duration::from_micros(200);

/// See the module.
#[derive(Debug)]
pub(in crate::collective) struct Flat {
    exchange: Exchange,
    arithmetic: Arithmetic,
    header: Header,
    /// What is longer than messages goes on in pieces when all messages have come.
    stage: Option<Stage>,
    /// When the engine looks again after something has come.
    look_soon: bool,
    /// Whether this rank has left its messages.
    told: bool,
    /// Ranks whose messages have not come, a bit each.
    missing: u32,
    started: Instant,
    progressed: Instant,
}

impl Flat {
    pub(super) fn new(exchange: Exchange, sequence: u64, started: Instant) -> Self {
        let Exchange { call, rank, ranks, pieces, .. } = exchange;
        let arithmetic = call.arithmetic(ranks);
        Self {
            exchange,
            arithmetic,
            header: call.header(rank, sequence),
            stage: pieces.map(|pieces| Stage::new(pieces, arithmetic, rank)),
            look_soon: false,
            told: false,
            missing: (u32::MAX >> (u32::BITS - ranks)) & !(1 << rank),
            started,
            progressed: started,
        }
    }

    /// Leaves a message for every other rank.
    ///
    /// # Errors
    ///
    /// This process may not: it was forked from the one that the others know.
    pub(super) fn tell<B: Buffers>(
        &mut self,
        host: &HostGroup,
        buffers: &B,
        scratch: &mut Scratch,
    ) -> Result<(), ReachError> {
        // A child must not change what its parent has left.
        host.check()?;
        if let Some(stage) = &mut self.stage {
            stage.begin(host, buffers, scratch);
        }
        let mut read = None;
        for to in host.others() {
            let span = self.exchange.sent(to);
            let message = &mut scratch[0][..span.len];
            if span.len > 0 && read != Some(span) {
                buffers.read(span, message);
                read = Some(span);
            }
            host.put(to, &self.header, message)?;
        }
        self.told = true;
        Ok(())
    }

    /// Whether all has come: messages, and pieces behind them.
    ///
    /// # Errors
    ///
    /// A rank that is in another operation, or leaves what is none.
    fn look<B: Buffers>(&mut self, with: &mut At<'_, B>) -> Result<bool, Stop> {
        let (host, mut left) = (with.host, self.missing);
        while left != 0 {
            let from = left.trailing_zeros();
            left &= left - 1;
            if host.has_come(from) {
                let line = host.line(from);
                if line != self.header.in_line() {
                    return Err(Header::of_line(line, from).map_or(Stop::Damaged(from), Stop::Mismatch));
                }
                self.missing &= !(1 << from);
            }
        }
        match &mut self.stage {
            Some(stage) if self.missing == 0 => stage.go(with).map_err(Stop::Reduce),
            _ => Ok(self.missing == 0),
        }
    }

    /// How far it has come, in no unit.
    fn way(&self) -> (u32, u64) {
        (self.missing, self.stage.as_ref().map_or(0, Stage::step))
    }

    /// Looks once; whether all has come. Not when something is none of this operation.
    pub(super) fn has_all<B: Buffers>(&mut self, with: &mut At<'_, B>) -> bool {
        self.look(with).unwrap_or(false)
    }

    pub(super) fn rank(&self) -> u32 {
        self.exchange.rank
    }

    /// Looks for as long as messages take when their ranks are there, unless it goes on no more; whether all have come.
    pub(super) fn hurry<B: Buffers>(
        &mut self,
        with: &mut At<'_, B>,
        deadline: Deadline,
        goes_on: impl Fn() -> bool,
    ) -> bool {
        let at_first = self.way();
        let done = hurry(with.host, deadline, goes_on, || {
            let before = self.way();
            match self.look(with) {
                Ok(true) => Looked::Done,
                Ok(false) if self.way() != before && self.stage.is_some() => Looked::Further,
                Ok(false) => Looked::Nothing,
                Err(_) => Looked::Wrong,
            }
        });
        if !done && self.way() != at_first {
            self.progressed = Instant::now();
        }
        done
    }

    /// Makes the output, once all messages have come.
    pub(super) fn finish<B: Buffers>(
        &self,
        host: &HostGroup,
        buffers: &mut B,
        scratch: &mut Scratch,
    ) -> Result<(), ReduceError> {
        let Exchange { rank: own, ranks, .. } = self.exchange;
        let [all, one] = scratch;
        for made in self.exchange.made() {
            match made {
                Made::Copied { span, from } if from == own => buffers.copy(span),
                Made::Copied { span, from } => {
                    host.read(from, (0, span.len), &mut all[..span.len]);
                    buffers.write(span, &all[..span.len]);
                }
                Made::Reduced { span: Span { len: 0, .. }, .. } => {}
                Made::Reduced { span, at, first } => {
                    let (all, one) = (&mut all[..span.len], &mut one[..span.len]);
                    let input = |rank, out: &mut [u8]| {
                        if rank == own {
                            buffers.read(span, out);
                        } else {
                            host.read(rank, (at, self.exchange.received(rank)), out);
                        }
                    };
                    input(first, all);
                    for step in 1..ranks {
                        input((first + step) % ranks, one);
                        self.arithmetic.reduce_into(all, one, step + 1 == ranks)?;
                    }
                    buffers.write(span, all);
                }
            }
        }
        Ok(())
    }

    /// One look with the engine at hand, which knows what becomes of the others.
    pub(super) fn advance<B: Buffers>(
        &mut self,
        with: &mut With<'_, B>,
        host: &HostGroup,
    ) -> Poll<Result<(), Stop>> {
        match self.try_advance(with, host) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => {
                let awaited = self.waits_for(with.ring);
                with.ring.wait(with.core, self.header.sequence, awaited, self.progressed);
                Poll::Pending
            }
            Err(stop) => Poll::Ready(Err(stop)),
        }
    }

    fn try_advance<B: Buffers>(&mut self, with: &mut With<'_, B>, host: &HostGroup) -> Result<bool, Stop> {
        let taken = with.ring.take_arrivals(with.core);
        if let Some(abort) = with.ring.abort.filter(|abort| is_ended_by(&self.header, abort)) {
            return Err(Stop::Abort(abort));
        }
        taken.map_err(Stop::Lost)?;
        self.check_ring(with.ring, with.core)?;
        // Not before: messages of an operation that has failed would let others go on.
        if !self.told {
            let told = self.tell(host, with.buffers, with.scratch);
            told.map_err(|refused| Stop::Lost(with.ring.next.refused(&refused)))?;
        }
        // Who has gone has left its messages before.
        let ended = with.ring.ended(with.core);
        let before = self.way();
        if self.look_for_more(with, host)? {
            self.finish(host, with.buffers, with.scratch).map_err(Stop::Reduce)?;
            host.end_round();
            return Ok(true);
        }
        self.look_soon = self.way() != before && self.stage.is_some();
        if self.way() != before {
            self.progressed = with.core.driven();
        }
        // Ranks that are further have left theirs: if they have lost one that has not, it will not come.
        let beyond = |abort: &Abort| {
            let lost = abort.reason == AbortReason::PeerFailed && self.is_missing(abort.culprit);
            lost && !is_found_here(&self.header, abort)
        };
        if let Some(abort) = with.ring.abort.filter(beyond) {
            return Err(Stop::Abort(abort));
        }
        let waits = [with.ring.next.rank, with.ring.previous.rank].map(|rank| self.is_missing(rank));
        at_fault(ended, waits).map_or(Ok(false), |lost| Err(Stop::Lost(lost)))
    }

    /// Looks, and again for a while as long as pieces come: the next one is there before the engine looks again.
    fn look_for_more<B: Buffers>(&mut self, with: &mut With<'_, B>, host: &HostGroup) -> Result<bool, Stop> {
        let mut at = At { host, buffers: with.buffers, scratch: with.scratch };
        let (mut way, begun) = (self.way(), Instant::now());
        let mut until = begun;
        loop {
            if self.look(&mut at)? {
                return Ok(true);
            }
            let now = Instant::now();
            if self.way() != way && self.stage.is_some() {
                way = self.way();
                until = (now + LOOK_FOR).min(begun + GO_FOR);
            }
            if now >= until {
                return Ok(false);
            }
            std::thread::yield_now();
        }
    }

    /// Looks for an operation of the rank before this one that goes around the ring instead.
    fn check_ring(&self, ring: &RingLinks, core: &mut Core) -> Result<(), Stop> {
        let mailbox = &ring.previous.mailbox;
        let number = mailbox.given_back();
        let sent = mailbox.arrived(number).map(|_| Header::read(&mailbox.header(number)));
        let Ok(sent) = sent.transpose() else { return Err(wrong(ring, core, DAMAGED)) };
        let ahead = ring.ahead.front().copied();
        let theirs = ahead.into_iter().chain(sent).find(|theirs| theirs.sequence <= self.header.sequence);
        ring.beyond.or(theirs).map_or(Ok(()), |theirs| Err(Stop::Mismatch(theirs)))
    }

    fn is_missing(&self, rank: u32) -> bool {
        rank < self.exchange.ranks && self.awaited() & (1 << rank) != 0
    }

    /// The ranks that it waits for, a bit each.
    fn awaited(&self) -> u32 {
        match &self.stage {
            Some(stage) if self.missing == 0 => stage.missing(),
            _ => self.missing,
        }
    }

    /// A neighbour if one is missing, since that may wait for another itself.
    pub(super) fn waits_for(&self, ring: &RingLinks) -> Awaited {
        if self.is_missing(ring.previous.rank) {
            Awaited::Neighbour(Direction::Previous)
        } else if self.is_missing(ring.next.rank) {
            Awaited::Neighbour(Direction::Next)
        } else {
            Awaited::Ranks(self.awaited())
        }
    }

    /// When to look again after `now`, since messages wake nobody.
    pub(super) fn look_at(&self, now: Instant) -> Instant {
        if self.look_soon {
            return now;
        }
        let waited =
            now.saturating_duration_since(if self.stage.is_some() { self.progressed } else { self.started });
        now + (waited / 16).clamp(NAP_MIN, NAP_MAX)
    }

    pub(super) fn progress(&self) -> Progress {
        let Self { header, started, progressed, exchange, missing, .. } = *self;
        let from = (0..exchange.ranks).filter(|rank| missing & (1 << rank) != 0);
        let messages: u64 = from.map(|rank| exchange.received(rank) as u64).sum();
        let bytes_outstanding = messages + self.stage.as_ref().map_or(0, Stage::outstanding);
        Progress { header, bytes_outstanding, started, progressed }
    }
}
