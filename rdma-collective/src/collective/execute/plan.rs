//! Plans: which algorithm and protocol a call takes, and the schedule that goes with it.
//!
//! Plans are plain data, so that executors, the queue and the communicator can share them. `planning` chooses them.

use super::buffers::Arithmetic;
use super::header_exchange::RankSet;
use super::pipeline::PipelinePlan;
use crate::collective::call::{Call, Origins};
use crate::collective::communicator::{Algorithm, Reach};
use crate::collective::eager_plan::EagerPlan;
use crate::collective::operation::Header;
use crate::collective::rank_of::RankOf;
use crate::collective::schedule::{P2pSchedule, Schedule};
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
}

/// The algorithm and the protocol of one operation.
///
/// All ranks come to the same plan, except for what each does with borrowed and with registered buffers: that they learn from each other
/// in the first messages, and then all take the [`Fallback`].
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a schedule is iterated where it is, without an allocation")]
pub(in crate::collective) enum ExecutionPlan {
    /// Over the links to the neighbours in the ring.
    Ring(Schedule),
    /// Through the windows of a host.
    Shm(ShmPlan),
    /// Over links to any ranks.
    P2p(P2pPlan),
    /// Between this rank and some others alone.
    SendRecv(SendRecvSet),
    /// In the buffers of the peers.
    ZeroCopy(ZeroCopyPlan, Fallback),
}

/// An operation through the windows of a host: everything that does not change from one call to the next that is the same.
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
    Ring(Schedule),
}

/// Who owns the buffers of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collective) enum Ownership {
    /// The caller: slices that are borrowed until the call returns.
    Borrowed,
    /// The operation: registered memory of the library.
    Owned,
}

/// The plan of the last call through windows. A next call that is the same takes it without looking into the tuning table.
#[derive(Debug)]
pub(in crate::collective) struct CachedPlan {
    pub(in crate::collective) call: Call,
    pub(in crate::collective) ownership: Ownership,
    pub(in crate::collective) plan: ShmPlan,
}

impl ExecutionPlan {
    pub(in crate::collective) fn algorithm(&self) -> Algorithm {
        match self {
            Self::Ring(_) => Algorithm::Ring,
            Self::Shm(plan) => plan.algorithm(),
            Self::P2p(plan) => plan.algorithm,
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

/// What goes by links to ranks that are no neighbours.
#[derive(Clone, Debug)]
pub(in crate::collective) struct P2pPlan {
    pub(in crate::collective) algorithm: Algorithm,
    pub(in crate::collective) steps: P2pSchedule,
    pub(in crate::collective) reach: Reach,
    /// How ranks connect, unless they are connected.
    pub(in crate::collective) connect: Option<Box<LinkSetup>>,
}

/// What goes around the ring before the links of an operation are there.
#[derive(Clone, Debug)]
pub(in crate::collective) struct LinkSetup {
    /// The words of all ranks: how each reaches the others, and whether each could connect.
    pub(in crate::collective) words: [Schedule; 2],
    /// The operation itself, where there can be no links and it needs none.
    pub(in crate::collective) instead: Option<Schedule>,
}
