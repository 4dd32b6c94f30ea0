//! Which collective is called, on what: what all ranks must agree on, and where a rank's buffers lie in it.

mod collective;
mod name;

use std::sync::Arc;

use rdma_core::memory::CacheHint;

use super::execute::Arithmetic;
use super::schedule::{Operation, P2pSchedule, ReduceOrder, Schedule, Staging};
use super::{DataType, ReduceOp};
use crate::collective::communicator::{Algorithm, CommunicatorOptions, Reach};
use crate::collective::operation::Header;
use crate::collective::rank_of::RankOf;
use crate::collective::{CollectiveError, ReduceError, ScheduleError};
use crate::groups::Groups;

pub use self::collective::Collective;
pub(super) use self::collective::Holds;
pub(super) use self::name::{is_of_two, name};

/// What a caller asks for, besides elements: a collective, with its reduction and its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) collective: Collective,
    /// `None` where nothing is reduced.
    pub(super) op: Option<ReduceOp>,
    /// The root, or the other rank of a send or receive; 0 where there is none.
    pub(super) root: u32,
}

impl Collective {
    /// The collective, by that reduction.
    pub(super) const fn by(self, op: ReduceOp) -> Request {
        Request { collective: self, op: Some(op), root: 0 }
    }

    /// The collective, from or to that rank.
    pub(super) const fn at(self, root: u32) -> Request {
        Request { collective: self, op: None, root }
    }
}

impl Request {
    /// The same, from or to that rank.
    pub(super) const fn at(self, root: u32) -> Self {
        Self { root, ..self }
    }

    /// The call of it on so many elements.
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

/// A call of a collective: all but its place among the others, and the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) collective: Collective,
    pub(super) op: Option<ReduceOp>,
    /// As of a [`Request`].
    pub(super) root: u32,
    /// Elements of each rank's buffer, or of its part where each has one of a longer buffer.
    pub(super) count: usize,
    pub(super) data_type: DataType,
}

/// Bytes of a rank's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lengths {
    InPlace(usize),
    OutOfPlace { input: usize, output: usize },
}

/// Where a rank's input and output begin in an operation's elements, in bytes, when they are two. In place it is at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Origins {
    pub(super) input: usize,
    pub(super) output: usize,
}

impl Request {
    /// Bytes that the count stands for, as a rank finds them in an input and an output of so many bytes.
    fn count_bytes(
        self,
        [input, output]: [usize; 2],
        RankOf { rank, size: ranks }: RankOf,
    ) -> Result<usize, CollectiveError> {
        // What other ranks pass for what the root alone has is not looked at.
        if self.collective.is_from_root() && rank != self.root {
            return Ok(output);
        }
        if self.collective.is_to_root() && rank != self.root {
            return Ok(input);
        }
        match self.collective.buffers() {
            (Holds::One, Holds::Parts) => part(input, output, ranks),
            (Holds::Parts, Holds::One) => part(output, input, ranks),
            _ if input == output => Ok(input),
            _ => Err(CollectiveError::LengthsDiffer { input, output }),
        }
    }
}

/// The bytes of a part, of which `whole` has one a rank.
fn part(part: usize, whole: usize, ranks: u32) -> Result<usize, CollectiveError> {
    if part.checked_mul(ranks as usize) == Some(whole) {
        Ok(part)
    } else {
        Err(CollectiveError::PartsDiffer { part, whole, ranks })
    }
}

/// Bytes that go around the ring in a barrier.
pub(super) const BARRIER_BYTES: usize = 1;

impl Call {
    /// What rank `rank` of `ranks` calls with buffers of such lengths.
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
            // What goes around for them is nobody's.
            (Collective::Barrier | Collective::Connect, _) => 0,
            (collective, Lengths::InPlace(whole)) if collective.has_parts() => {
                let (count, parts) = (elements(whole)?, ranks as usize);
                if !count.is_multiple_of(parts) {
                    return Err(CollectiveError::Indivisible { count, ranks });
                }
                count / parts
            }
            (_, Lengths::InPlace(bytes)) => elements(bytes)?,
            (Collective::AllToAll, Lengths::OutOfPlace { input, output }) if input == output => {
                return Self::new(request, data_type, Lengths::InPlace(input), RankOf { rank, size: ranks });
            }
            (_, Lengths::OutOfPlace { input, output }) => {
                elements(request.count_bytes([input, output], RankOf { rank, size: ranks })?)?
            }
        };
        Ok(request.of(count, data_type))
    }

    /// Which collective, and its bytes: what the way depends on.
    pub(super) fn class(&self) -> (Collective, usize) {
        (self.collective, self.bytes())
    }

    /// Whether `rank` hands elements in.
    #[inline]
    pub(super) const fn gives(&self, rank: u32) -> bool {
        !self.collective.is_from_root() || self.root == rank
    }

    /// Whether `rank` gets elements.
    #[inline]
    pub(super) const fn gets(&self, rank: u32) -> bool {
        !self.collective.is_to_root() || self.root == rank
    }

    /// Bytes of each rank's buffer, or of its part.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.count.saturating_mul(self.data_type.size())
    }

    /// Where ranks of one host expect what they copy without reducing it: of what they read and write together.
    pub(super) fn expect(&self, ranks: u32) -> CacheHint {
        let (one, ranks) = (self.bytes(), ranks as usize);
        let parts = match self.collective {
            Collective::Broadcast => ranks,
            Collective::AllGather => ranks * (ranks + 1),
            Collective::AllToAll => 2 * ranks * ranks,
            // What is reduced is read again, and added to where it is.
            _ => return CacheHint::Cached,
        };
        CacheHint::of_total(one.saturating_mul(parts))
    }

    /// The steps of rank `rank` of `ranks` around the ring; `None` of what needs other links.
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
            // Whoever has the reduction of an element has heard of all ranks; of no elements it would hear of one.
            Collective::Barrier => {
                Schedule::all_reduce(Operation { count: BARRIER_BYTES, ..operation }, reproducible)
            }
            _ => return Ok(None),
        }
        .map(Some)
    }

    /// The steps of rank `rank` of `ranks` in rounds, as that algorithm has them, on such hosts, and how far the links must reach.
    pub(super) fn rounds(
        &self,
        RankOf { rank, size: ranks }: RankOf,
        staging: Staging,
        (by, hosts): (Algorithm, &Arc<Groups>),
    ) -> Result<(P2pSchedule, Reach), ScheduleError> {
        let Self { collective, root, count, data_type, .. } = *self;
        let operation = Operation { rank, ranks, count, data_type, staging };
        let (steps, reach) = match collective {
            Collective::Gather => (P2pSchedule::gather(operation, root)?, Reach::Doublings),
            Collective::Scatter => (P2pSchedule::scatter(operation, root)?, Reach::Doublings),
            Collective::AllToAll if by == Algorithm::Bruck => {
                (P2pSchedule::all_to_all_short(operation)?, Reach::Doublings)
            }
            // In one of nothing, ranks tell each other nothing but of their links.
            Collective::AllToAll | Collective::Connect => (P2pSchedule::all_to_all(operation)?, Reach::All),
            Collective::Broadcast => (P2pSchedule::broadcast(operation, root)?, Reach::Doublings),
            Collective::Reduce => (P2pSchedule::reduce(operation, root)?, Reach::Doublings),
            _ if by == Algorithm::Hierarchical => (P2pSchedule::hierarchical(operation, hosts)?, Reach::All),
            _ => (P2pSchedule::halving_doubling(operation)?, Reach::All),
        };
        Ok((steps, reach))
    }

    /// The order in which its schedule reduces.
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
            Collective::ReduceScatter if !reproducible => ReduceOrder::from((rank + 1) % ranks),
            Collective::Reduce if !reproducible => ReduceOrder::from((root + 1) % ranks),
            _ => ReduceOrder::from(0),
        })
    }

    /// Where the buffers of `rank` lie when input and output are two.
    #[inline]
    pub(super) fn origins(&self, rank: u32) -> Origins {
        let own = rank as usize * self.count * self.data_type.size();
        match self.collective.buffers() {
            (Holds::One, Holds::Parts) => Origins { input: own, output: 0 },
            (Holds::Parts, Holds::One) => Origins { input: 0, output: own },
            _ => Origins::default(),
        }
    }

    #[inline]
    pub(super) fn arithmetic(&self, ranks: u32) -> Arithmetic {
        // What does not reduce has no step that asks for it.
        Arithmetic { data_type: self.data_type, op: self.op.unwrap_or(ReduceOp::Sum), ranks }
    }

    /// What `rank` tells of it as its operation number `sequence`.
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

/// What a schedule needs to know of the mailboxes.
pub(super) fn staging(options: &CommunicatorOptions) -> Staging {
    Staging { slots: options.slots, slot_bytes: options.slot_bytes, chunk_bytes_min: options.chunk_bytes_min }
}
