//! Which collective is called, on what: what all ranks must agree on, and where a rank's buffers lie in it.

mod name;

use std::sync::Arc;

use rdma_core::memory::CacheHint;

use super::execute::Arithmetic;
use super::schedule::{Operation, P2pSchedule, ReduceOrder, Schedule, Staging};
use super::uneven::Uneven;
use super::{DataType, ReduceOp};
use crate::collective::communicator::{Algorithm, CommunicatorOptions, Reach};
use crate::collective::operation::Header;
use crate::collective::tuning;
use crate::collective::{CollectiveError, ReduceError, ScheduleError};
use crate::groups::Groups;

use self::name::name_of;
pub(super) use self::name::{is_of_two, name};

/// A collective, with what it takes besides elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collective {
    AllReduce(ReduceOp),
    AllGather,
    ReduceScatter(ReduceOp),
    Broadcast {
        root: u32,
    },
    Reduce {
        op: ReduceOp,
        root: u32,
    },
    Barrier,
    Gather {
        root: u32,
    },
    Scatter {
        root: u32,
    },
    AllToAll,
    /// Links to all ranks, and nothing else.
    Connect,
    /// What ranks tell each other, as an all-gather, that are about to form other communicators.
    Split,
    /// With parts of any length.
    Uneven(Uneven),
    /// Of two ranks alone, as either of them sees it; the one that sends tells the other.
    Send {
        to: u32,
    },
    Receive {
        from: u32,
    },
}

/// A call of a collective: all but its place among the others, and the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) collective: Collective,
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

impl Collective {
    const fn code(self) -> u8 {
        match self {
            Self::AllReduce(_) => 1,
            Self::AllGather => 2,
            Self::ReduceScatter(_) => 3,
            Self::Broadcast { .. } => 4,
            Self::Reduce { .. } => 5,
            Self::Barrier => 6,
            Self::Gather { .. } => 7,
            Self::Scatter { .. } => 8,
            Self::AllToAll => 9,
            Self::Connect => 10,
            Self::Send { .. } => 11,
            // No rank is told this one.
            Self::Receive { .. } => 12,
            Self::Split => 13,
            Self::Uneven(uneven) => uneven.code(),
        }
    }

    #[inline]
    pub(super) const fn op(self) -> Option<ReduceOp> {
        match self {
            Self::AllReduce(op) | Self::ReduceScatter(op) | Self::Reduce { op, .. } => Some(op),
            _ => None,
        }
    }

    #[inline]
    pub(super) const fn root(self) -> Option<u32> {
        match self {
            Self::Broadcast { root }
            | Self::Reduce { root, .. }
            | Self::Gather { root }
            | Self::Scatter { root }
            | Self::Send { to: root }
            | Self::Receive { from: root } => Some(root),
            Self::Uneven(uneven) => uneven.root(),
            _ => None,
        }
    }

    /// Whether a buffer has a part for each rank.
    const fn has_parts(self) -> bool {
        matches!(
            self,
            Self::AllGather
                | Self::Split
                | Self::ReduceScatter(_)
                | Self::Gather { .. }
                | Self::Scatter { .. }
                | Self::AllToAll
        )
    }

    /// Under which name the way that it takes is looked up; `None` of what goes by links always.
    pub(super) const fn tuned(self) -> Option<tuning::Collective> {
        Some(match self {
            Self::AllReduce(_) => tuning::Collective::AllReduce,
            Self::AllGather | Self::Split => tuning::Collective::AllGather,
            Self::ReduceScatter(_) => tuning::Collective::ReduceScatter,
            Self::Broadcast { .. } => tuning::Collective::Broadcast,
            Self::Reduce { .. } => tuning::Collective::Reduce,
            Self::Barrier => tuning::Collective::Barrier,
            Self::Gather { .. } => tuning::Collective::Gather,
            Self::Scatter { .. } => tuning::Collective::Scatter,
            Self::AllToAll => tuning::Collective::AllToAll,
            Self::Connect | Self::Send { .. } | Self::Receive { .. } | Self::Uneven(_) => return None,
        })
    }

    /// Bytes that the count stands for, as rank `rank` of `ranks` finds them in two buffers of so many bytes.
    fn count_bytes(
        self,
        input: usize,
        output: usize,
        rank: u32,
        ranks: u32,
    ) -> Result<usize, CollectiveError> {
        match self {
            Self::AllGather | Self::Split => part(input, output, ranks),
            Self::ReduceScatter(_) => part(output, input, ranks),
            // What other ranks pass for what the root alone has is not looked at.
            Self::Broadcast { root } if rank != root => Ok(output),
            Self::Reduce { root, .. } | Self::Gather { root } if rank != root => Ok(input),
            Self::Scatter { root } if rank != root => Ok(output),
            Self::Gather { .. } => part(input, output, ranks),
            Self::Scatter { .. } => part(output, input, ranks),
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
        collective: Collective,
        data_type: DataType,
        lengths: Lengths,
        [rank, ranks]: [u32; 2],
    ) -> Result<Self, CollectiveError> {
        let elements = |bytes: usize| match bytes.is_multiple_of(data_type.size()) {
            true => Ok(bytes / data_type.size()),
            false => Err(ReduceError::PartialElement { bytes, data_type }),
        };
        let count = match (collective, lengths) {
            // What goes around for them is nobody's.
            (Collective::Barrier | Collective::Connect, _) => 0,
            (_, Lengths::InPlace(whole)) if collective.has_parts() => {
                let (count, parts) = (elements(whole)?, ranks as usize);
                if !count.is_multiple_of(parts) {
                    return Err(CollectiveError::Indivisible { count, ranks });
                }
                count / parts
            }
            (_, Lengths::InPlace(bytes)) => elements(bytes)?,
            (Collective::AllToAll, Lengths::OutOfPlace { input, output }) if input == output => {
                return Self::new(collective, data_type, Lengths::InPlace(input), [rank, ranks]);
            }
            (_, Lengths::OutOfPlace { input, output }) => {
                elements(collective.count_bytes(input, output, rank, ranks)?)?
            }
        };
        Ok(Self { collective, count, data_type })
    }

    /// Which collective, by number and name, and its bytes: what the way depends on.
    pub(super) fn class(&self) -> (u8, &'static str, usize) {
        let code = self.collective.code();
        (code, name_of(code), self.bytes())
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
            Collective::Broadcast { .. } => ranks,
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
        [rank, ranks]: [u32; 2],
        staging: Staging,
        reproducible: bool,
    ) -> Result<Option<Schedule>, ScheduleError> {
        let Self { collective, count, data_type } = *self;
        let operation = Operation { rank, ranks, count, data_type, staging };
        match collective {
            Collective::AllReduce(_) => Schedule::all_reduce(operation, reproducible),
            Collective::AllGather | Collective::Split => Schedule::all_gather(operation),
            Collective::ReduceScatter(_) => Schedule::reduce_scatter(operation, reproducible),
            Collective::Broadcast { root } => Schedule::broadcast(operation, root),
            Collective::Reduce { root, .. } => Schedule::reduce(operation, root, reproducible),
            // Whoever has the reduction of an element has heard of all ranks; of no elements it would hear of one.
            Collective::Barrier => {
                Schedule::all_reduce(Operation { count: BARRIER_BYTES, ..operation }, reproducible)
            }
            Collective::Gather { .. }
            | Collective::Scatter { .. }
            | Collective::AllToAll
            | Collective::Connect
            | Collective::Uneven(_)
            | Collective::Send { .. }
            | Collective::Receive { .. } => return Ok(None),
        }
        .map(Some)
    }

    /// The steps of rank `rank` of `ranks` in rounds, as that algorithm has them, on such hosts, and how far the links must reach.
    pub(super) fn rounds(
        &self,
        [rank, ranks]: [u32; 2],
        staging: Staging,
        (by, hosts): (Algorithm, &Arc<Groups>),
    ) -> Result<(P2pSchedule, Reach), ScheduleError> {
        let Self { collective, count, data_type } = *self;
        let operation = Operation { rank, ranks, count, data_type, staging };
        let (steps, reach) = match collective {
            Collective::Gather { root } => (P2pSchedule::gather(operation, root)?, Reach::Doublings),
            Collective::Scatter { root } => (P2pSchedule::scatter(operation, root)?, Reach::Doublings),
            Collective::AllToAll if by == Algorithm::Bruck => {
                (P2pSchedule::all_to_all_short(operation)?, Reach::Doublings)
            }
            // In one of nothing, ranks tell each other nothing but of their links.
            Collective::AllToAll | Collective::Connect => (P2pSchedule::all_to_all(operation)?, Reach::All),
            Collective::Broadcast { root } => (P2pSchedule::broadcast(operation, root)?, Reach::Doublings),
            Collective::Reduce { root, .. } => (P2pSchedule::reduce(operation, root)?, Reach::Doublings),
            _ if by == Algorithm::Hierarchical => (P2pSchedule::hierarchical(operation, hosts)?, Reach::All),
            _ => (P2pSchedule::halving_doubling(operation)?, Reach::All),
        };
        Ok((steps, reach))
    }

    /// The order in which its schedule reduces.
    pub(super) fn order(
        &self,
        [rank, ranks]: [u32; 2],
        staging: Staging,
        reproducible: bool,
    ) -> Result<ReduceOrder, ScheduleError> {
        let Self { collective, count, data_type } = *self;
        Ok(match collective {
            Collective::AllReduce(_) if !reproducible => {
                ReduceOrder::of_ring(&Operation { rank, ranks, count, data_type, staging })?
            }
            Collective::ReduceScatter(_) if !reproducible => ReduceOrder::from((rank + 1) % ranks),
            Collective::Reduce { root, .. } if !reproducible => ReduceOrder::from((root + 1) % ranks),
            _ => ReduceOrder::from(0),
        })
    }

    /// Where the buffers of `rank` lie when input and output are two.
    #[inline]
    pub(super) fn origins(&self, rank: u32) -> Origins {
        let own = rank as usize * self.count * self.data_type.size();
        match self.collective {
            Collective::AllGather | Collective::Split | Collective::Gather { .. } => {
                Origins { input: own, output: 0 }
            }
            Collective::ReduceScatter(_) | Collective::Scatter { .. } => Origins { input: 0, output: own },
            _ => Origins::default(),
        }
    }

    #[inline]
    pub(super) fn arithmetic(&self, ranks: u32) -> Arithmetic {
        // What does not reduce has no step that asks for it.
        let op = self.collective.op().unwrap_or(ReduceOp::Sum);
        Arithmetic { data_type: self.data_type, op, ranks }
    }

    /// What `rank` tells of it as its operation number `sequence`.
    #[inline]
    pub(super) fn header(&self, rank: u32, sequence: u64) -> Header {
        let Self { collective, count, data_type } = *self;
        Header {
            rank,
            sequence,
            count: count as u64,
            collective: collective.code(),
            data_type: data_type.code(),
            reduction: collective.op().map_or(0, ReduceOp::code),
            root: collective.root().unwrap_or(0),
        }
    }
}

/// What a schedule needs to know of the mailboxes.
pub(super) fn staging(options: &CommunicatorOptions) -> Staging {
    Staging { slots: options.slots, slot_bytes: options.slot_bytes, chunk_bytes_min: options.chunk_bytes_min }
}
