//! The strand: steps that one rank takes in order, and the transfers that come behind them.
//!
//! A collective is one strand. Of sends and receives, those over one link in one direction are one: only the first
//! message of a transfer carries a header, and the others are known by their order alone, so a transfer must not
//! overtake the one before it.

use std::time::Instant;
use std::vec;

use super::ExecContext;
use crate::collective::call::Collective;
use crate::collective::communicator::{Link, Links};
use crate::collective::execute::buffers::{Arithmetic, Buffers};
use crate::collective::execute::stop::Stop;
use crate::collective::operation::{DAMAGED, Header};
use crate::collective::schedule::{Schedule, Share, Span, Step};
use crate::collective::send_recv_set::Point;
use crate::engine::EngineState;

/// The state of one strand.
#[derive(Debug)]
pub(super) struct Strand {
    pub(super) steps: Schedule,
    /// The next step; `None` at the end.
    pub(super) step: Option<Step>,
    /// The header of the operation, or of the present transfer with its number on its link.
    pub(super) header: Header,
    pub(super) arithmetic: Arithmetic,
    /// The position of the buffer that the steps use.
    pub(super) buffer: usize,
    /// The transfers behind the present one.
    rest: vec::IntoIter<Point>,
}

impl Strand {
    /// The strand of a collective.
    pub(super) fn new(mut steps: Schedule, header: Header, arithmetic: Arithmetic) -> Self {
        let step = steps.next();
        Self { steps, step, header, arithmetic, buffer: 0, rest: Vec::new().into_iter() }
    }

    /// The strand of sends or receives of `rank`; `None` if there are none.
    pub(super) fn of(points: Vec<Point>, rank: u32, arithmetic: Arithmetic) -> Option<Self> {
        let mut rest = points.into_iter();
        let Point { call, buffer, .. } = *rest.as_slice().first()?;
        let steps = rest.next()?.steps();
        Some(Self { rest, buffer, ..Self::new(steps, call.header(rank, 0), arithmetic) })
    }

    /// Gives a send or receive its number on its link, and counts its messages from here on. Both ends check by the
    /// number that they mean the same transfer.
    pub(super) fn begin(&mut self, links: &mut Links) {
        let Some(link) = links.table.link_mut(self.header.root) else { return };
        let number = match Collective::of_code(self.header.collective) {
            Some(Collective::Send) => &mut link.points_sent,
            Some(Collective::Receive) => {
                // All messages of the transfers before are given back by now.
                (link.received_before, link.agreed) = (link.inbox.given_back(), false);
                &mut link.points_received
            }
            _ => return,
        };
        self.header.sequence = *number;
        *number += 1;
    }

    /// Takes every step that can be taken now. `progressed` becomes the time of the last one.
    pub(super) fn advance<B: Buffers>(
        &mut self,
        with: &mut ExecContext<'_, B>,
        scratch: &mut [u8],
        progressed: &mut Instant,
    ) -> Result<(), Stop> {
        while let Some(step) = self.step {
            if !self.take(with, scratch, step)? {
                break;
            }
            self.step = self.steps.next();
            *progressed = with.core.now();
            if self.step.is_none()
                && let Some(next) = self.rest.next()
            {
                (self.steps, self.buffer) = (next.steps(), next.buffer);
                self.header = next.call.header(self.header.rank, 0);
                self.step = self.steps.next();
                self.begin(with.links);
            }
        }
        Ok(())
    }

    /// The rank at the other end of the next step.
    pub(super) fn peer(&self) -> Option<u32> {
        self.step.and_then(|step| step.peer())
    }

    /// The bytes that have not been received yet.
    pub(super) fn bytes_outstanding(&self) -> u64 {
        let present: usize = self.step.into_iter().chain(self.steps.clone()).map(|step| step.used()).sum();
        let received = |point: &&Point| point.call.collective == Collective::Receive;
        let rest: usize = self.rest.as_slice().iter().filter(received).map(|point| point.call.bytes()).sum();
        present as u64 + rest as u64
    }

    /// Whether the peer is in the same operation. The header in front of its first message is compared.
    pub(super) fn is_agreed(&self, link: &mut Link, core: &mut EngineState) -> Result<bool, Stop> {
        let Link { inbox, received_before, agreed, .. } = link;
        if !*agreed && inbox.arrived(*received_before).is_some() {
            let expected = self.expected(link.rank);
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

    /// The header in front of the first message from a peer.
    fn expected(&self, peer: u32) -> Header {
        let own = self.header_on(peer, |share| share.received);
        if own.collective != Collective::Receive.code() {
            return own;
        }
        // The peer has called a send to this rank.
        Header { collective: Collective::Send.code(), root: own.rank, ..own }
    }

    /// The header in front of the first message to a peer, or from it. If the parts are uneven, its count is that of
    /// the elements for this peer, because no rank knows the counts of all pairs.
    pub(super) fn header_on(&self, peer: u32, part: impl Fn(Share) -> Option<Span>) -> Header {
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
}
