//! The memory of all ranks, where they have told that it is.

use rdma_core::error::ReachError;
use rdma_core::{Deadline, PeerSlice, RemoteMemory};

use super::{Halt, Moves};
use crate::collective::execute::buffers::{Arithmetic, Place, Told};
use crate::collective::execute::run::Stop;
use crate::collective::schedule::Span;
use crate::comm::{Core, HostGroup, Lost, Near};
use crate::error::LaneFailure;

/// See the module.
pub(super) struct Reach<'a> {
    pub(super) core: &'a mut Core,
    pub(super) host: &'a HostGroup,
    pub(super) moves: &'a Moves,
    pub(super) told: &'a [Told],
}

impl Reach<'_> {
    /// Does it to the input of another rank, in which `span` begins where it is told.
    fn input(
        &mut self,
        rank: u32,
        span: Span,
        with: impl FnOnce(&mut PeerSlice<'_>, usize) -> Result<(), ReachError>,
    ) -> Result<(), Halt> {
        let [len, _] = self.moves.lengths();
        let memory = self.told[rank as usize].input.memory(len);
        let at = span.offset - self.moves.call.origins(rank).input;
        self.with(rank, memory, |peer| with(peer, at))
    }

    /// The same of its output.
    pub(super) fn output(
        &mut self,
        rank: u32,
        span: Span,
        with: impl FnOnce(&mut PeerSlice<'_>, usize) -> Result<(), ReachError>,
    ) -> Result<(), Halt> {
        let [_, len] = self.moves.lengths();
        let memory = self.told[rank as usize].output.memory(len);
        let at = span.offset - self.moves.call.origins(rank).output;
        self.with(rank, memory, |peer| with(peer, at))
    }

    /// Reads `span` of the input of another rank to where another span of this one's output lies.
    pub(super) fn read_to(
        &mut self,
        rank: u32,
        span: Span,
        (output, to): (&Place, Span),
    ) -> Result<(), Halt> {
        self.input(rank, span, |peer, at| peer.copy_to(at, span.len, &output.region, output.at(to)))
    }

    fn with(
        &mut self,
        rank: u32,
        memory: RemoteMemory,
        with: impl FnOnce(&mut PeerSlice<'_>) -> Result<(), ReachError>,
    ) -> Result<(), Halt> {
        let Some(id) = self.host.lane(rank) else { return Err(Halt::Blocked(rank)) };
        // Nothing is waited for with the engine at hand.
        let at_once = Deadline::at(self.core.driven());
        let done = self.core.peer_slice(id, memory, at_once).and_then(|mut peer| with(&mut peer));
        done.map_err(|why| match why {
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

    /// Makes `span` of the inputs of all ranks, from `first` on.
    pub(super) fn reduce(
        &mut self,
        near: &mut Near,
        own: &Place,
        span: Span,
        first: u32,
        arithmetic: Arithmetic,
    ) -> Result<(), Halt> {
        let Near { made, read } = near;
        let (made, read) = (&mut made[..span.len], &mut read[..span.len]);
        let ranks = self.moves.ranks;
        self.read(first, own, span, made)?;
        for step in 1..ranks {
            self.read((first + step) % ranks, own, span, read)?;
            let reduced = arithmetic.reduce_into(made, read, step + 1 == ranks);
            reduced.map_err(|error| Halt::Stop(Stop::Reduce(error)))?;
        }
        Ok(())
    }

    pub(super) fn read(&mut self, rank: u32, own: &Place, span: Span, out: &mut [u8]) -> Result<(), Halt> {
        if rank == self.moves.rank {
            let read = own.region.copy_out(own.at(span), out);
            debug_assert!(read.is_ok(), "a span beyond the input");
            return Ok(());
        }
        self.input(rank, span, |peer, at| peer.copy_out(at, out))
    }

    pub(super) fn store(&mut self, rank: u32, own: &Place, span: Span, made: &[u8]) -> Result<(), Halt> {
        if rank == self.moves.rank {
            let stored = own.region.copy_in(own.at(span), made);
            debug_assert!(stored.is_ok(), "a span beyond the output");
            return Ok(());
        }
        self.output(rank, span, |peer, at| peer.copy_in(at, made))
    }
}
