//! Access to the advertised buffers of all ranks: copies and reductions between them and this rank's own buffers.
//!
//! `zero_copy` decides about the moves and their retries. Here every access either succeeds at once, or returns a
//! [`Halt`], because nothing may wait while it holds the engine.

use rdma_core::error::ReachError;
use rdma_core::memory::CacheHint;
use rdma_core::{Deadline, PeerSlice, RemoteMemory};

use super::{Halt, ZeroCopyPlan};
use crate::collective::communicator::{HostGroup, Links, Lost, ReduceScratch, ZERO_COPY_PIECE_BYTES};
use crate::collective::execute::buffers::{Arithmetic, BufferAdvert, RegisteredBuffer};
use crate::collective::execute::stop::Stop;
use crate::collective::reduce::Operand;
use crate::collective::schedule::{Source, Span};
use crate::engine::{EngineState, LaneId};
use crate::link::{FIRST_RAIL, LaneFailure};

const _: () = assert!(
    ZERO_COPY_PIECE_BYTES <= 256 * 1024,
    "a piece of two ranks in place is made at once or not at all"
);

/// The reason for the end of an operation between ranks of one host whose link goes on over other devices alone.
const NO_LANE: &str = "every lane on the first device has failed, and by no other the ranks of one host reach each other's memory";

/// The buffers of all ranks, for one step of a zero-copy operation.
pub(super) struct PeerBuffers<'a> {
    pub(super) core: &'a mut EngineState,
    pub(super) host: &'a HostGroup,
    pub(super) links: &'a Links,
    pub(super) moves: &'a ZeroCopyPlan,
    /// The cache hint for bytes that are stored for good.
    pub(super) expect: CacheHint,
    pub(super) adverts: &'a [BufferAdvert],
}

impl PeerBuffers<'_> {
    /// Calls `with` on the input or output of a peer, with the offset of `span` in it.
    fn at(
        &mut self,
        (rank, source): (u32, Source),
        (span, expect): (Span, CacheHint),
        with: impl FnOnce(&mut PeerSlice<'_>, usize) -> Result<(), ReachError>,
    ) -> Result<(), Halt> {
        let ([input, output], origins) = (self.moves.lengths(), self.moves.call.origins(rank));
        let advert = &self.adverts[rank as usize];
        let (at, len, origin) = match source {
            Source::Input => (advert.input, input, origins.input),
            _ => (advert.output, output, origins.output),
        };
        self.with(rank, (at.memory(len), expect), |peer| with(peer, span.offset - origin))
    }

    /// Stores the range `from` of this rank's input to `span` of a peer's output.
    pub(super) fn store_from(
        &mut self,
        rank: u32,
        span: Span,
        (input, from): (&RegisteredBuffer, Span),
    ) -> Result<(), Halt> {
        self.at((rank, Source::Output), (span, self.expect), |peer, at| {
            peer.copy_from(at, span.len, &input.region, input.at(from))
        })
    }

    /// Reads `span` of a peer's input into the range `to` of this rank's output.
    pub(super) fn read_to(
        &mut self,
        rank: u32,
        span: Span,
        (output, to): (&RegisteredBuffer, Span),
    ) -> Result<(), Halt> {
        self.at((rank, Source::Input), (span, self.expect), |peer, at| {
            peer.copy_to(at, span.len, &output.region, output.at(to))
        })
    }

    fn with(
        &mut self,
        rank: u32,
        (memory, expect): (RemoteMemory, CacheHint),
        with: impl FnOnce(&mut PeerSlice<'_>) -> Result<(), ReachError>,
    ) -> Result<(), Halt> {
        let id = self.lane(rank)?;
        // A deadline that has passed already: try once, because a wait would hold the engine.
        let at_once = Deadline::at(self.core.now());
        let peer = self.core.peer_slice(id, memory, at_once);
        let done = peer.and_then(|peer| with(&mut peer.with_cache_hint(expect)));
        done.map_err(|why| match why {
            // A peer that revoked its memory or is gone may have failed. The ring finds out, and knows the culprit.
            ReachError::DeadlineExceeded { .. }
            | ReachError::Revoked
            | ReachError::PeerGone
            | ReachError::Failed { .. } => Halt::Blocked(rank),
            why => {
                let Some(lane) = self.core.lane(id).map(|lane| lane.name()) else {
                    return Halt::Blocked(rank);
                };
                let cause = LaneFailure::Device(why.to_string().into());
                Halt::Stop(Stop::Lost(Lost { rank, lane, cause, away: None }))
            }
        })
    }

    /// The lane by which this rank reaches the memory of another one. Memory is lent on the first rail alone, so that
    /// another lane of that rail takes the place of one that has failed.
    fn lane(&mut self, rank: u32) -> Result<LaneId, Halt> {
        let Self { core, host, links, .. } = self;
        let first = host.lane(rank).ok_or(Halt::Blocked(rank))?;
        let ended = core.lane(first).map_or(Some(LaneFailure::Fenced), |lane| lane.ended());
        let Some(link) = links.table.link(rank).filter(|_| ended.is_some()) else { return Ok(first) };
        // The peer itself has ended, or the link finds out which lanes are left: the ring tells, and knows the reason.
        if !matches!(ended, Some(LaneFailure::Fenced)) || link.lanes.is_paused {
            return Err(Halt::Blocked(rank));
        }
        let mut is_up = |id: &LaneId| core.lane(*id).is_some_and(|lane| lane.ended().is_none());
        let left: Vec<LaneId> = link.lanes.open.iter().copied().filter(|id| is_up(id)).collect();
        let on_rail = left.iter().find(|id| core.lane(**id).is_some_and(|lane| lane.rail() == FIRST_RAIL));
        match on_rail {
            Some(id) => Ok(*id),
            None if left.is_empty() => Err(Halt::Blocked(rank)),
            None => {
                let cause = LaneFailure::Device(NO_LANE.into());
                Err(Halt::Stop(Stop::Lost(Lost { rank, lane: link.lanes.name, cause, away: None })))
            }
        }
    }

    /// Reduces `span` of the inputs of all ranks, at least two, from `first` on, into `scratch.made`.
    pub(super) fn reduce(
        &mut self,
        scratch: &mut ReduceScratch,
        own: &RegisteredBuffer,
        span: Span,
        first: u32,
        arithmetic: Arithmetic,
    ) -> Result<(), Halt> {
        let (ranks, rank) = (self.moves.ranks, self.moves.rank);
        let (reduction, of_rank) = (arithmetic.reduction, |step: u32| (first + step) % ranks);
        let input = Operand::Region(&own.region, own.at(span));
        let ReduceScratch { made, read } = scratch;
        // The two buffers swap roles at each further rank. Choose the first one so that the last result is in `made`.
        let (mut out, mut sum) = (&mut made[..span.len], &mut read[..span.len]);
        if ranks % 2 == 1 {
            (out, sum) = (sum, out);
        }
        let two = [first, of_rank(1)];
        if let Some(other) = two.iter().position(|of| *of == rank).map(|own| two[1 - own]) {
            self.at((other, Source::Input), (span, CacheHint::Cached), |peer, at| {
                reduction.reduce_peer(out, input, (peer, at))
            })?;
        } else {
            let [first, second] = two;
            self.at((first, Source::Input), (span, CacheHint::Cached), |peer, at| peer.copy_out(at, sum))?;
            self.at((second, Source::Input), (span, CacheHint::Cached), |peer, at| {
                reduction.reduce_peer(out, Operand::Slice(sum), (peer, at))
            })?;
        }
        for other in (2..ranks).map(of_rank) {
            (out, sum) = (sum, out);
            if other == rank {
                let reduced = reduction.reduce_near(out, Some(Operand::Slice(sum)), input);
                debug_assert!(reduced.is_ok(), "a span beyond the input");
            } else {
                self.at((other, Source::Input), (span, CacheHint::Cached), |peer, at| {
                    reduction.reduce_peer(out, Operand::Slice(sum), (peer, at))
                })?;
            }
        }
        arithmetic.finish(out, true).map_err(|error| Halt::Stop(Stop::Reduce(error)))
    }

    /// Whether there are two ranks, and both work in place.
    pub(super) fn are_two_in_place(&self) -> bool {
        self.moves.ranks == 2 && self.adverts.iter().take(2).all(|advert| advert.input == advert.output)
    }

    /// Reduces `span` of the inputs of two ranks in place on both, in one pass. Returns whether this rank's buffer has
    /// the result, and the outcome of the store at the peer.
    pub(super) fn reduce_both(
        &mut self,
        own: &RegisteredBuffer,
        span: Span,
        arithmetic: Arithmetic,
    ) -> (bool, Result<(), Halt>) {
        let rank = self.moves.rank;
        let (local, mut made) = ((&own.region, own.at(span)), false);
        let done = self.at((1 - rank, Source::Input), (span, CacheHint::Cached), |peer, at| {
            let done;
            (made, done) = arithmetic.reduction.reduce_both(local, (peer, at), span.len);
            done
        });
        #[cfg(test)]
        if made && done.is_ok() && super::tests::is_refused() {
            let lost = self.store(1 - rank, own, span, &vec![0xa5; span.len]);
            return (made, lost.and(Err(Halt::Blocked(1 - rank))));
        }
        (made, done)
    }

    pub(super) fn read(
        &mut self,
        rank: u32,
        own: &RegisteredBuffer,
        span: Span,
        out: &mut [u8],
    ) -> Result<(), Halt> {
        if rank == self.moves.rank {
            let read = own.region.copy_out(own.at(span), out);
            debug_assert!(read.is_ok(), "a span beyond the input");
            return Ok(());
        }
        self.at((rank, Source::Input), (span, CacheHint::Cached), |peer, at| peer.copy_out(at, out))
    }

    pub(super) fn store(
        &mut self,
        rank: u32,
        own: &RegisteredBuffer,
        span: Span,
        made: &[u8],
    ) -> Result<(), Halt> {
        if rank == self.moves.rank {
            let stored = own.region.copy_in(own.at(span), made);
            debug_assert!(stored.is_ok(), "a span beyond the output");
            return Ok(());
        }
        self.at((rank, Source::Output), (span, self.expect), |peer, at| peer.copy_in(at, made))
    }
}
