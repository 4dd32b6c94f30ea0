//! One operation of one rank by messages to all others at once: without the engine while that is quick, and as a step of the
//! engine from then on.

use std::task::Poll;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rdma_core::error::ReachError;

use super::buffers::{Arithmetic, Buffers};
use super::give_up::Progress;
use super::run::{DAMAGED, Stop, With, is_ended_by, is_found_here, wrong};
use crate::collective::exchange::{Exchange, Made};
use crate::collective::schedule::Span;
use crate::comm::operation::{Abort, Header};
use crate::comm::{Awaited, Core, Direction, HostGroup, RingLinks, Scratch, at_fault};
use crate::error::{AbortReason, ReduceError};

/// Looks in a row before others may run: about as long as a message is under way from a rank that is there.
const LOOKS: u32 = 500;
/// More of them, with the processor told that it waits; neither, and a quarter of those before, when that was in vain last.
const PATIENT_LOOKS: u32 = 500;
/// How long the caller's thread lets others run, before the engine takes over.
const YIELD_FOR: Duration = Duration::from_micros(300);
/// Between two looks of the engine.
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug)]
pub(in crate::collective) struct Flat {
    exchange: Exchange,
    arithmetic: Arithmetic,
    header: Header,
    /// Whether this rank has left its messages.
    told: bool,
    /// Ranks whose messages have not come, a bit each.
    missing: u32,
    started: Instant,
    progressed: Instant,
}

impl Flat {
    pub(super) fn new(exchange: Exchange, sequence: u64, started: Instant) -> Self {
        let Exchange { call, rank, ranks, .. } = exchange;
        Self {
            exchange,
            arithmetic: call.arithmetic(ranks),
            header: call.header(rank, sequence),
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

    /// Whether all messages have come.
    ///
    /// # Errors
    ///
    /// A rank that is in another operation, or leaves what is none.
    fn look(&mut self, host: &HostGroup) -> Result<bool, Stop> {
        let mut left = self.missing;
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
        Ok(self.missing == 0)
    }

    /// Whether all messages are there; not when one is none of this operation.
    pub(super) fn has_all(&mut self, host: &HostGroup) -> bool {
        self.look(host).unwrap_or(false)
    }

    pub(super) fn rank(&self) -> u32 {
        self.exchange.rank
    }

    /// Looks for as long as messages take when their ranks are there; whether all have come.
    pub(super) fn hurry(&mut self, host: &HostGroup, deadline: Deadline) -> bool {
        let mut look = || match self.look(host) {
            Ok(all) => all.then_some(true),
            // Who tells the others is told of it, too.
            Err(_) => Some(false),
        };
        let prompt = host.is_prompt();
        let (looks, patient) = if prompt { (LOOKS, PATIENT_LOOKS) } else { (LOOKS / 4, 0) };
        for number in 0..looks + patient {
            if let Some(all) = look() {
                if !prompt {
                    host.set_prompt(true);
                }
                return all;
            }
            if number >= looks {
                std::hint::spin_loop();
            }
        }
        // Ranks that share a core, or are more than there are cores, come when they are let.
        host.set_prompt(false);
        let until = deadline.min(Deadline::after(YIELD_FOR));
        while !until.expired() {
            // It may take as long as others like.
            std::thread::yield_now();
            if let Some(all) = look() {
                return all;
            }
        }
        false
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
        let missing = self.missing;
        if self.look(host)? {
            self.finish(host, with.buffers, with.scratch).map_err(Stop::Reduce)?;
            host.end_round();
            return Ok(true);
        }
        if self.missing != missing {
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
        rank < self.exchange.ranks && self.missing & (1 << rank) != 0
    }

    /// A neighbour if one is missing, since that may wait for another itself.
    pub(super) fn waits_for(&self, ring: &RingLinks) -> Awaited {
        if self.is_missing(ring.previous.rank) {
            Awaited::Neighbour(Direction::Previous)
        } else if self.is_missing(ring.next.rank) {
            Awaited::Neighbour(Direction::Next)
        } else {
            Awaited::Ranks(self.missing)
        }
    }

    /// When to look again after `now`, since messages wake nobody.
    pub(super) fn look_at(&self, now: Instant) -> Instant {
        let waited = now.saturating_duration_since(self.started);
        now + (waited / 16).clamp(NAP_MIN, NAP_MAX)
    }

    pub(super) fn progress(&self) -> Progress {
        let Self { header, started, progressed, exchange, missing, .. } = *self;
        let from = (0..exchange.ranks).filter(|rank| missing & (1 << rank) != 0);
        let bytes_outstanding = from.map(|rank| exchange.received(rank) as u64).sum();
        Progress { header, bytes_outstanding, started, progressed }
    }
}
