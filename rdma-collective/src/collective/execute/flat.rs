//! One operation of one rank by messages to all others at once: without the engine while that is quick, and as a step of the
//! engine from then on.

use std::task::Poll;
use std::time::Instant;

use rdma_core::Deadline;
use rdma_core::error::ReachError;

use super::buffers::{Arithmetic, Buffers};
use super::give_up::Progress;
use super::meeting::Meeting;
use super::run::{Stop, With};
use crate::collective::exchange::{Exchange, Made};
use crate::collective::schedule::Span;
use crate::comm::{Awaited, HostGroup, RingLinks, Scratch};
use crate::error::ReduceError;

/// See the module.
#[derive(Debug)]
pub(in crate::collective) struct Flat {
    exchange: Exchange,
    arithmetic: Arithmetic,
    meeting: Meeting,
    /// Whether this rank has left its messages.
    told: bool,
    started: Instant,
}

impl Flat {
    pub(super) fn new(exchange: Exchange, sequence: u64, started: Instant) -> Self {
        let Exchange { call, rank, ranks, .. } = exchange;
        Self {
            exchange,
            arithmetic: call.arithmetic(ranks),
            meeting: Meeting::new(call.header(rank, sequence), ranks, started),
            told: false,
            started,
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
            host.put(to, &self.meeting.header, message)?;
        }
        self.told = true;
        Ok(())
    }

    /// Whether all messages are there; not when one is none of this operation.
    pub(super) fn has_all(&mut self, host: &HostGroup) -> bool {
        self.meeting.look(host).unwrap_or(false)
    }

    pub(super) fn rank(&self) -> u32 {
        self.exchange.rank
    }

    /// Looks for as long as messages take when their ranks are there; whether all have come.
    pub(super) fn hurry(&mut self, host: &HostGroup, deadline: Deadline) -> bool {
        self.meeting.hurry(host, deadline)
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
                let (awaited, Meeting { header, progressed, .. }) =
                    (self.waits_for(with.ring), &self.meeting);
                with.ring.wait(with.core, header.sequence, awaited, *progressed);
                Poll::Pending
            }
            Err(stop) => Poll::Ready(Err(stop)),
        }
    }

    fn try_advance<B: Buffers>(&mut self, with: &mut With<'_, B>, host: &HostGroup) -> Result<bool, Stop> {
        self.meeting.listen(with.ring, with.core, None)?;
        // Not before: messages of an operation that has failed would let others go on.
        if !self.told {
            let told = self.tell(host, with.buffers, with.scratch);
            told.map_err(|refused| Stop::Lost(with.ring.next.refused(&refused)))?;
        }
        let come = self.meeting.attend(with.ring, with.core, host)?;
        if come {
            self.finish(host, with.buffers, with.scratch).map_err(Stop::Reduce)?;
            host.end_round();
        }
        Ok(come)
    }

    pub(super) fn waits_for(&self, ring: &RingLinks) -> Awaited {
        self.meeting.waits_for(ring)
    }

    /// When to look again after `now`, since messages wake nobody.
    pub(super) fn look_at(&self, now: Instant) -> Instant {
        self.meeting.look_at(now)
    }

    pub(super) fn progress(&self) -> Progress {
        let Self { meeting, started, exchange, .. } = self;
        let bytes_outstanding = meeting.missing().map(|rank| exchange.received(rank) as u64).sum();
        let Meeting { header, progressed, .. } = *meeting;
        Progress { header, bytes_outstanding, started: *started, progressed }
    }
}
