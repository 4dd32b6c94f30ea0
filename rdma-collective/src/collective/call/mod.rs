//! Calls of a collective: the values that all ranks must agree on, and where a rank's buffers lie. `collective` has the
//! table of collectives, `name` the words for errors; the plans decide how bytes travel.

mod collective;
mod name;

use std::sync::Arc;

use rdma_core::memory::CacheHint;

use super::execute::Arithmetic;
use super::schedule::{Operation, P2pSchedule, ReduceOrder, Schedule, Staging};
use super::{DataType, ReduceOp};
use crate::collective::communicator::{Algorithm, CommunicatorOptions};
use crate::collective::operation::Header;
use crate::collective::rank_of::RankOf;
use crate::collective::{CollectiveError, ReduceError, ScheduleError};
use crate::groups::Groups;

pub use self::collective::Collective;
pub(super) use self::collective::Holds;
pub(super) use self::name::{is_of_two, mismatch, name};

/// A caller's request, without elements: a collective, with its reduction and its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) collective: Collective,
    /// The reduction; `None` where nothing is reduced.
    pub(super) op: Option<ReduceOp>,
    /// The root, or the other rank of a send or receive; 0 where there is none.
    pub(super) root: u32,
}

impl Collective {
    /// Requests the collective with that reduction.
    pub(super) const fn by(self, op: ReduceOp) -> Request {
        Request { collective: self, op: Some(op), root: 0 }
    }

    /// Requests the collective from or to that rank.
    pub(super) const fn at(self, root: u32) -> Request {
        Request { collective: self, op: None, root }
    }
}

impl Request {
    /// Returns this request with that root.
    pub(super) const fn at(self, root: u32) -> Self {
        Self { root, ..self }
    }

    /// Returns the call of this request on so many elements.
    #[inline]
    pub(super) const fn of(self, count: usize, data_type: DataType) -> Call {
        let Self { collective, op, root } = self;
        Call { collective, op, root, count, data_type }
    }
}

impl From<Collective> for Request {
    fn from(collective: Collective) -> Self {
        Self { collective, op: None, root: 0 }
    }
}

/// A call of a collective: everything but its number, and equal on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) collective: Collective,
    pub(super) op: Option<ReduceOp>,
    /// The root, as in [`Request`].
    pub(super) root: u32,
    /// Elements of each rank's buffer, or of its part where each rank has a part of a longer buffer.
    pub(super) count: usize,
    pub(super) data_type: DataType,
}

/// Bytes of a rank's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lengths {
    InPlace(usize),
    OutOfPlace { input: usize, output: usize },
}

impl Lengths {
    /// Bytes of the longer buffer.
    pub(super) fn longest(self) -> usize {
        match self {
            Self::InPlace(bytes) => bytes,
            Self::OutOfPlace { input, output } => input.max(output),
        }
    }

    /// Bytes of both buffers.
    pub(super) fn total(self) -> usize {
        match self {
            Self::InPlace(bytes) => bytes,
            Self::OutOfPlace { input, output } => input.saturating_add(output),
        }
    }
}

/// Offsets in bytes at which a rank's input and output begin among the operation's elements, when they are two. A
/// buffer that is used in place begins at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Origins {
    pub(super) input: usize,
    pub(super) output: usize,
}

impl Request {
    /// Bytes of the call's count, from the lengths of a rank's input and output.
    fn count_bytes(
        self,
        [input, output]: [usize; 2],
        RankOf { rank, size: ranks }: RankOf,
    ) -> Result<usize, CollectiveError> {
        // The root alone has this buffer, so whatever other ranks pass for it is ignored.
        if self.collective.properties().from_root && rank != self.root {
            return Ok(output);
        }
        // Likewise for the output: a rank that gets nothing counts its input alone.
        if self.collective.properties().to_root && rank != self.root {
            return Ok(input);
        }
        match self.collective.properties().buffers {
            (Holds::One, Holds::Parts) => part(input, output, ranks),
            (Holds::Parts, Holds::One) => part(output, input, ranks),
            _ if input == output => Ok(input),
            _ => Err(CollectiveError::LengthsDiffer { input, output }),
        }
    }
}

/// Bytes of a part, if `whole` has as many parts as there are ranks.
fn part(part: usize, whole: usize, ranks: u32) -> Result<usize, CollectiveError> {
    // Checked: a product that wraps around could equal a wrong length by chance.
    if part.checked_mul(ranks as usize) == Some(whole) {
        Ok(part)
    } else {
        Err(CollectiveError::PartsDiffer { part, whole, ranks })
    }
}

/// Bytes that go around the ring in a barrier.
pub(super) const BARRIER_BYTES: usize = 1;

impl Call {
    /// Returns the call of a rank that passes buffers of such lengths.
    #[inline]
    pub(super) fn new(
        request: Request,
        data_type: DataType,
        lengths: Lengths,
        RankOf { rank, size: ranks }: RankOf,
    ) -> Result<Self, CollectiveError> {
        let elements = |bytes: usize| match bytes.is_multiple_of(data_type.size()) {
            true => Ok(bytes / data_type.size()),
            false => Err(ReduceError::PartialElement { bytes, data_type }),
        };
        let count = match (request.collective, lengths) {
            // The bytes that a barrier sends are the library's, so no caller has a count.
            (Collective::Barrier | Collective::Connect, _) => 0,
            (collective, Lengths::InPlace(whole)) if collective.properties().has_parts => {
                let (count, parts) = (elements(whole)?, ranks as usize);
                if !count.is_multiple_of(parts) {
                    return Err(CollectiveError::Indivisible { count, ranks });
                }
                count / parts
            }
            (_, Lengths::InPlace(bytes)) => elements(bytes)?,
            // Both buffers hold all parts, so neither length alone is the count: divide as in place.
            (Collective::AllToAll, Lengths::OutOfPlace { input, output }) if input == output => {
                return Self::new(request, data_type, Lengths::InPlace(input), RankOf { rank, size: ranks });
            }
            (_, Lengths::OutOfPlace { input, output }) => {
                elements(request.count_bytes([input, output], RankOf { rank, size: ranks })?)?
            }
        };
        Ok(request.of(count, data_type))
    }

    /// The collective and its bytes, from which the tuning table chooses the algorithm.
    pub(super) fn class(&self) -> (Collective, usize) {
        (self.collective, self.bytes())
    }

    /// Whether `rank` hands elements in.
    #[inline]
    pub(super) const fn gives(&self, rank: u32) -> bool {
        !self.collective.properties().from_root || self.root == rank
    }

    /// Whether `rank` gets elements.
    #[inline]
    pub(super) const fn gets(&self, rank: u32) -> bool {
        !self.collective.properties().to_root || self.root == rank
    }

    /// Bytes of each rank's buffer, or of its part.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        // Saturates, because this runs before the schedule refuses a count that overflows.
        self.count.saturating_mul(self.data_type.size())
    }

    /// The cache hint for copies between ranks of one host that reduce nothing: by the bytes that all of them read and
    /// write together.
    pub(super) fn expect(&self, ranks: u32) -> CacheHint {
        // The sum over all ranks counts, because ranks of one host share the last-level cache.
        let (one, ranks) = (self.bytes(), ranks as usize);
        let parts = match self.collective {
            Collective::Broadcast => ranks,
            Collective::AllGather => ranks * (ranks + 1),
            Collective::AllToAll => 2 * ranks * ranks,
            // Data to reduce is read again, and added to in place, so it should stay in the cache.
            _ => return CacheHint::Cached,
        };
        CacheHint::of_total(one.saturating_mul(parts))
    }

    /// The rank's steps around the ring; `None` for a collective that needs other links.
    pub(super) fn schedule(
        &self,
        RankOf { rank, size: ranks }: RankOf,
        staging: Staging,
        reproducible: bool,
    ) -> Result<Option<Schedule>, ScheduleError> {
        let Self { collective, root, count, data_type, .. } = *self;
        let operation = Operation { rank, ranks, count, data_type, staging };
        match collective {
            Collective::AllReduce => Schedule::all_reduce(operation, reproducible),
            Collective::AllGather | Collective::Split => Schedule::all_gather(operation),
            Collective::ReduceScatter => Schedule::reduce_scatter(operation, reproducible),
            Collective::Broadcast => Schedule::broadcast(operation, root),
            Collective::Reduce => Schedule::reduce(operation, root, reproducible),
            // A rank that has an element's reduction has heard of all ranks. With no elements it would hear of one
            // neighbour only, so a barrier reduces one byte.
            Collective::Barrier => {
                Schedule::all_reduce(Operation { count: BARRIER_BYTES, ..operation }, reproducible)
            }
            _ => return Ok(None),
        }
        .map(Some)
    }

    /// The rank's steps in rounds, by that algorithm and on such hosts.
    pub(super) fn rounds(
        &self,
        RankOf { rank, size: ranks }: RankOf,
        staging: Staging,
        (by, hosts): (Algorithm, &Arc<Groups>),
    ) -> Result<P2pSchedule, ScheduleError> {
        let Self { collective, root, count, data_type, .. } = *self;
        let operation = Operation { rank, ranks, count, data_type, staging };
        match collective {
            Collective::AllReduce if by == Algorithm::Hierarchical => {
                P2pSchedule::hierarchical(operation, hosts)
            }
            Collective::AllReduce => P2pSchedule::all_reduce(operation),
            Collective::AllGather | Collective::Split => P2pSchedule::all_gather(operation),
            Collective::ReduceScatter => P2pSchedule::reduce_scatter(operation),
            Collective::Broadcast => P2pSchedule::broadcast(operation, root),
            Collective::Reduce => P2pSchedule::reduce(operation, root),
            Collective::Barrier => P2pSchedule::barrier(Operation { count: BARRIER_BYTES, ..operation }),
            Collective::Gather => P2pSchedule::gather(operation, root),
            Collective::Scatter => P2pSchedule::scatter(operation, root),
            Collective::AllToAll if by == Algorithm::Bruck => P2pSchedule::all_to_all_short(operation),
            // A `connect` moves no data: its ranks exchange only the news that their links work.
            _ => P2pSchedule::all_to_all(operation),
        }
    }

    /// The order in which the call's schedule reduces, so that eager and zero-copy sums have the ring's bits.
    pub(super) fn order(
        &self,
        RankOf { rank, size: ranks }: RankOf,
        staging: Staging,
        reproducible: bool,
    ) -> Result<ReduceOrder, ScheduleError> {
        let Self { collective, root, count, data_type, .. } = *self;
        Ok(match collective {
            Collective::AllReduce if !reproducible => {
                ReduceOrder::of_ring(&Operation { rank, ranks, count, data_type, staging })?
            }
            // A part starts at the rank after its owner and goes around the ring, so the owner adds its own last.
            Collective::ReduceScatter if !reproducible => ReduceOrder::from((rank + 1) % ranks),
            Collective::Reduce if !reproducible => ReduceOrder::from((root + 1) % ranks),
            _ => ReduceOrder::from(0),
        })
    }

    /// Offsets of the buffers of `rank` when input and output are two.
    #[inline]
    pub(super) fn origins(&self, rank: u32) -> Origins {
        let own = rank as usize * self.count * self.data_type.size();
        match self.collective.properties().buffers {
            (Holds::One, Holds::Parts) => Origins { input: own, output: 0 },
            (Holds::Parts, Holds::One) => Origins { input: 0, output: own },
            _ => Origins::default(),
        }
    }

    #[inline]
    pub(super) fn arithmetic(&self, ranks: u32) -> Arithmetic {
        // A call that does not reduce has no step that uses the operation, so any will do.
        Arithmetic::new(self.data_type, self.op.unwrap_or(ReduceOp::Sum), ranks)
    }

    /// The header that `rank` sends for this call as operation number `sequence`. Peers compare it with their own call.
    #[inline]
    pub(super) fn header(&self, rank: u32, sequence: u64) -> Header {
        let Self { collective, op, root, count, data_type } = *self;
        Header {
            rank,
            sequence,
            count: count as u64,
            collective: collective.code(),
            data_type: data_type.code(),
            reduction: op.map_or(0, ReduceOp::code),
            root,
        }
    }
}

/// The mailbox sizes that a schedule needs.
pub(super) fn staging(options: &CommunicatorOptions) -> Staging {
    Staging { slots: options.slots, slot_bytes: options.slot_bytes, chunk_bytes_min: options.chunk_bytes_min }
}
