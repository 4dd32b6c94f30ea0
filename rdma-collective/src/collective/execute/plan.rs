//! Plans: which algorithm and protocol a call takes, and the schedule that goes with it.
//!
//! Plans are plain data, so that executors, the queue and the communicator can share them. `planning` chooses them.

use std::time::Instant;

use super::buffers::Arithmetic;
use super::header_exchange::RankSet;
use super::pipeline::PipelinePlan;
use crate::collective::call::{Call, Lengths, Origins};
use crate::collective::communicator::{Algorithm, Operation, Reach, Tallies};
use crate::collective::eager_plan::EagerPlan;
use crate::collective::operation::Header;
use crate::collective::rank_of::RankOf;
use crate::collective::schedule::Schedule;
use crate::collective::send_recv_set::SendRecvSet;
use crate::collective::zero_copy_plan::ZeroCopyPlan;

/// An operation that can begin.
#[derive(Clone, Debug)]
pub(in crate::collective) struct Plan {
    pub(in crate::collective) call: Call,
    pub(in crate::collective) arithmetic: Arithmetic,
    /// Where the buffers of this rank begin.
    pub(in crate::collective) origins: Origins,
    pub(in crate::collective) execution: ExecutionPlan,
}

impl Plan {
    /// The plan of rank `of.rank`.
    #[inline]
    pub(in crate::collective) fn new(call: Call, of: RankOf, execution: ExecutionPlan) -> Self {
        Self { call, arithmetic: call.arithmetic(of.size), origins: call.origins(of.rank), execution }
    }

    /// Begins to count the operation on buffers of these lengths. A group of sends and receives counts as one, with all
    /// its bytes, and an empty group counts as none.
    #[inline]
    pub(super) fn counted(
        &self,
        tallies: &mut Tallies,
        lengths: impl IntoIterator<Item = Lengths>,
        started: impl FnOnce() -> Instant,
    ) -> Operation {
        let bytes = match &self.execution {
            ExecutionPlan::SendRecv(set) if set.is_empty() => return Operation::default(),
            ExecutionPlan::SendRecv(_) => Lengths::total,
            _ => Lengths::longest,
        };
        let bytes = lengths.into_iter().map(bytes).sum();
        tallies.begin((self.call.collective, self.execution.algorithm()), bytes, started)
    }
}

/// The algorithm and the protocol of one operation.
///
/// All ranks come to the same plan, except that a rank with borrowed buffers may take the [`Fallback`] at once. The
/// first messages of a zero-copy operation tell the other ranks, and then all of them take it.
#[derive(Clone, Debug)]
pub(in crate::collective) enum ExecutionPlan {
    /// Over links.
    Links(LinkPlan),
    /// Through the windows of a host.
    Shm(ShmPlan),
    /// Between this rank and some others alone.
    SendRecv(SendRecvSet),
    /// In the buffers of the peers.
    ZeroCopy(ZeroCopyPlan, Fallback),
}

/// The participants of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Participants {
    /// All ranks. The operation has a sequence number, which is the same on all of them.
    All,
    /// All ranks, and the caller's thread has sent this rank's headers already. Peers count on the operation, so its
    /// deadline may no longer refuse to begin it.
    AllHeadersSent,
    /// The two ends of each transfer. The operation has no sequence number, and runs before the next collective.
    Pair,
}

/// The plan of an operation through the windows of a host. It holds what two equal calls have in common, so that the
/// second one can reuse it.
#[derive(Clone, Copy, Debug)]
pub(in crate::collective) struct ShmPlan {
    /// The header of this rank's messages, but for the number of the operation.
    pub(in crate::collective) header: Header,
    /// The other ranks of the host.
    pub(in crate::collective) others: RankSet,
    /// The ranks without whose messages this one cannot end.
    pub(in crate::collective) needed: RankSet,
    pub(in crate::collective) arithmetic: Arithmetic,
    pub(in crate::collective) protocol: ShmProtocol,
}

/// How the bytes go through the windows.
#[derive(Clone, Copy, Debug)]
pub(in crate::collective) enum ShmProtocol {
    /// In the messages of the exchange themselves.
    Eager(EagerPlan),
    /// In pieces behind them, because there are more than a message holds.
    Pipelined(PipelinePlan),
}

/// How the ranks of a host go on when some of them have borrowed buffers, which no peer can reach.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a schedule is iterated where it is, without an allocation")]
pub(in crate::collective) enum Fallback {
    Pipelined(PipelinePlan),
    Ring(LinkPlan),
}

/// The owner of a call's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collective) enum Ownership {
    /// The caller: slices that are borrowed until the call returns.
    Borrowed,
    /// The operation: registered memory of the library.
    Owned,
}

/// The plan of the last call through windows. An equal call takes it again without a look into the tuning table.
#[derive(Debug)]
pub(in crate::collective) struct CachedPlan {
    pub(in crate::collective) call: Call,
    pub(in crate::collective) ownership: Ownership,
    pub(in crate::collective) plan: ShmPlan,
}

impl ExecutionPlan {
    pub(in crate::collective) fn participants(&self) -> Participants {
        if matches!(self, Self::SendRecv(_)) { Participants::Pair } else { Participants::All }
    }

    pub(in crate::collective) fn algorithm(&self) -> Algorithm {
        match self {
            Self::Links(plan) => plan.algorithm,
            Self::Shm(plan) => plan.algorithm(),
            Self::SendRecv(_) => Algorithm::Pairs,
            Self::ZeroCopy(..) => Algorithm::Direct,
        }
    }

    /// The name at INFO; where a peer turns out to have borrowed buffers another one is taken.
    pub(in crate::collective) fn name(&self) -> &'static str {
        match self {
            Self::SendRecv(_) => "from rank to rank",
            Self::ZeroCopy(_, Fallback::Ring(_)) => "direct, or ring where slices are borrowed",
            Self::ZeroCopy(_, Fallback::Pipelined(_)) => "direct, or pieces where slices are borrowed",
            _ => self.algorithm().name(),
        }
    }
}

impl ShmPlan {
    pub(in crate::collective) fn new(call: Call, of: RankOf, protocol: ShmProtocol) -> Self {
        let others = RankSet::all_but(of.rank, of.size);
        let needs = |from: &u32| match &protocol {
            ShmProtocol::Eager(plan) => plan.needs(*from),
            ShmProtocol::Pipelined(plan) => plan.needs(*from),
        };
        Self {
            // The executor fills in the number of the operation, so that the plan can be cached.
            header: call.header(of.rank, 0),
            others,
            needed: others.iter().filter(needs).collect(),
            arithmetic: call.arithmetic(of.size),
            protocol,
        }
    }

    pub(in crate::collective) fn algorithm(&self) -> Algorithm {
        match self.protocol {
            ShmProtocol::Eager(_) => Algorithm::Flat,
            ShmProtocol::Pipelined(_) => Algorithm::Pieces,
        }
    }
}

/// The plan of an operation over links.
#[derive(Clone, Debug)]
pub(in crate::collective) struct LinkPlan {
    pub(in crate::collective) algorithm: Algorithm,
    pub(in crate::collective) steps: Schedule,
    pub(in crate::collective) reach: Reach,
    /// The steps that connect the links first; `None` if they are connected.
    pub(in crate::collective) connect: Option<Box<LinkSetup>>,
}

impl LinkPlan {
    /// The plan of an operation around the ring.
    pub(in crate::collective) fn around(steps: Schedule) -> Self {
        Self { algorithm: Algorithm::Ring, steps, reach: Reach::default(), connect: None }
    }
}

/// The exchange around the ring that connects the links of an operation.
#[derive(Clone, Debug)]
pub(in crate::collective) struct LinkSetup {
    /// Two all-gathers: the addresses of all ranks, and whether each rank could connect.
    pub(in crate::collective) words: [LinkPlan; 2],
    /// The operation around the ring, for the case that the links cannot be connected. `None` if it needs links.
    pub(in crate::collective) instead: Option<LinkPlan>,
}
