//! The collectives under test, and the results that they must bring.

use std::sync::Arc;

use crate::collective::DataType;
use crate::collective::ScheduleError;
use crate::collective::schedule::p2p::{Merging, Pieces};
use crate::collective::schedule::tests::simulate::{Cell, World};
use crate::collective::schedule::{Operation, P2pSchedule, Staging, Step};
use crate::groups::Groups;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Halving {
        halvings: u32,
    },
    Circulant,
    Merging,
    AllGather,
    ReduceScatter,
    Barrier,
    /// Ranks on that many hosts, in blocks, or in turn if `dealt`.
    Hierarchy {
        hosts: u32,
        dealt: bool,
    },
    Broadcast {
        root: u32,
    },
    Reduce {
        root: u32,
    },
    Gather {
        root: u32,
    },
    Scatter {
        root: u32,
    },
    /// A broadcast, or a reduce, by two trees.
    TwoTrees {
        root: u32,
        reduces: bool,
    },
    Pairs,
    Bruck,
}

impl Call {
    /// All collectives of `ranks` ranks, with the first, the last and a root between.
    pub(super) fn all(ranks: u32) -> Vec<Self> {
        let mut roots = vec![0, ranks / 2, ranks - 1];
        roots.dedup();
        let halvings = [0, 1, ranks.ilog2()].map(|halvings| Self::Halving { halvings });
        let mut all = vec![Self::Pairs, Self::Bruck, Self::Circulant, Self::AllGather, Self::ReduceScatter];
        all.extend(halvings.into_iter().chain([Self::Barrier, Self::Merging]));
        let mut hosts = vec![1, 2, 3, ranks / 2, ranks];
        hosts.retain(|hosts| (1..=ranks).contains(hosts));
        hosts.sort_unstable();
        hosts.dedup();
        all.extend(
            hosts
                .iter()
                .flat_map(|hosts| [false, true].map(|dealt| Self::Hierarchy { hosts: *hosts, dealt })),
        );
        all.extend(roots.into_iter().flat_map(Self::rooted));
        all
    }

    pub(super) fn rooted(root: u32) -> [Self; 6] {
        [
            Self::Broadcast { root },
            Self::Reduce { root },
            Self::Gather { root },
            Self::Scatter { root },
            Self::TwoTrees { root, reduces: false },
            Self::TwoTrees { root, reduces: true },
        ]
    }

    /// This collective on one rank, which is then the root.
    pub(super) fn on_one_rank(self) -> Self {
        match self {
            Self::Broadcast { .. } => Self::Broadcast { root: 0 },
            Self::Reduce { .. } => Self::Reduce { root: 0 },
            Self::Gather { .. } => Self::Gather { root: 0 },
            Self::Scatter { .. } => Self::Scatter { root: 0 },
            Self::TwoTrees { reduces, .. } => Self::TwoTrees { root: 0, reduces },
            Self::Hierarchy { dealt, .. } => Self::Hierarchy { hosts: 1, dealt },
            other => other,
        }
    }

    /// The host of each rank, where hosts matter; blocks are as equal as can be.
    pub(super) fn hosts(self, ranks: u32) -> Groups {
        let Self::Hierarchy { hosts, dealt } = self else { return Groups::default() };
        let host = |rank: u32| if dealt { rank % hosts } else { rank / ranks.div_ceil(hosts) };
        Groups::by((0..ranks).map(host))
    }

    pub(super) fn schedule(self, operation: Operation) -> Result<P2pSchedule, ScheduleError> {
        match self {
            Self::Halving { halvings } => P2pSchedule::halving(operation, halvings),
            Self::Circulant => P2pSchedule::circulant(operation),
            Self::Merging if Merging::fits(&operation) => P2pSchedule::merging(operation),
            Self::Merging => P2pSchedule::halving(operation, 0),
            Self::AllGather => P2pSchedule::all_gather(operation),
            Self::ReduceScatter => {
                let Staging { slots, slot_bytes, .. } = operation.staging;
                P2pSchedule::reduce_scatter_within(operation, usize::from(slots) * slot_bytes)
            }
            Self::Barrier => P2pSchedule::barrier(operation),
            Self::TwoTrees { root, reduces } => {
                operation.check_root(root)?;
                let pieces = Pieces::passing(&operation, operation.ranks)?;
                P2pSchedule::two_trees(operation, (reduces, root), pieces)
            }
            Self::Hierarchy { .. } => {
                P2pSchedule::hierarchical(operation, &Arc::new(self.hosts(operation.ranks)))
            }
            Self::Broadcast { root } => P2pSchedule::broadcast(operation, root),
            Self::Reduce { root } => P2pSchedule::reduce(operation, root),
            Self::Gather { root } => P2pSchedule::gather(operation, root),
            Self::Scatter { root } => P2pSchedule::scatter(operation, root),
            Self::Pairs => P2pSchedule::all_to_all(operation),
            Self::Bruck => P2pSchedule::all_to_all_short(operation),
        }
    }

    pub(super) fn data_type(self, count: usize) -> DataType {
        if count.is_multiple_of(2) { DataType::F32 } else { DataType::F16 }
    }

    pub(super) fn programs(self, ranks: u32, count: usize, staging: Staging) -> Vec<P2pSchedule> {
        let data_type = self.data_type(count);
        let this = if ranks == 1 { self.on_one_rank() } else { self };
        let operation = |rank| Operation { rank, ranks, count, data_type, staging };
        (0..ranks).map(|rank| this.schedule(operation(rank)).unwrap()).collect()
    }

    /// Parts of the longer one of input and output.
    pub(super) fn parts(self, ranks: u32) -> usize {
        match self {
            Self::Gather { .. } | Self::Scatter { .. } | Self::Pairs | Self::Bruck => ranks as usize,
            Self::AllGather | Self::ReduceScatter => ranks as usize,
            _ => 1,
        }
    }

    /// Messages of a part, about.
    pub(super) fn messages(self, ranks: u32) -> usize {
        match self {
            Self::Halving { .. } | Self::Circulant | Self::Merging | Self::Hierarchy { .. } => {
                2 * ranks as usize - 2
            }
            Self::AllGather | Self::ReduceScatter => 2 * ranks as usize - 2,
            Self::Bruck => 3 * ranks as usize - 3,
            _ => ranks as usize,
        }
    }

    /// Whether a rank's input has the element of an index.
    fn has(self, rank: usize, element: usize, count: usize) -> bool {
        match self {
            Self::Gather { .. } | Self::AllGather => element / count == rank,
            Self::TwoTrees { root, reduces } => reduces || rank == root as usize,
            Self::Broadcast { root } | Self::Scatter { root } => rank == root as usize,
            _ => true,
        }
    }

    /// The cell that `rank` must have at an index; `None` where it may store nothing.
    fn expected(self, rank: usize, element: usize, count: usize, ranks: usize) -> Option<Cell> {
        let total = || Cell::total_in_any_order(ranks, element);
        match self {
            Self::Halving { .. } | Self::Circulant | Self::Merging | Self::Hierarchy { .. } => Some(total()),
            Self::AllGather => Some(Cell::of(element / count, element)),
            Self::ReduceScatter => (element / count == rank).then(total),
            Self::Barrier => (ranks == 1).then(|| Cell::of(rank, element)),
            Self::Broadcast { root } | Self::TwoTrees { root, reduces: false } => {
                Some(Cell::of(root as usize, element))
            }
            Self::Reduce { root } | Self::TwoTrees { root, reduces: true } => {
                (rank == root as usize).then(total)
            }
            Self::Gather { root } => (rank == root as usize).then(|| Cell::of(element / count, element)),
            Self::Scatter { root } => (element / count == rank).then(|| Cell::of(root as usize, element)),
            Self::Pairs | Self::Bruck => Some(Cell::of(element / count, rank * count + element % count)),
        }
    }

    pub(super) fn assert_ended<P>(self, world: &World<P>, ranks: u32, count: usize)
    where
        P: Iterator<Item = Step> + Clone,
    {
        let this = if ranks == 1 { self.on_one_rank() } else { self };
        world.assert_ended(|rank, element| this.expected(rank, element, count, ranks as usize));
    }
}

/// The world of a collective, with the input of each rank.
pub(super) fn world<P>(
    call: Call,
    programs: Vec<P>,
    count: usize,
    staging: Staging,
    in_place: bool,
) -> World<P>
where
    P: Iterator<Item = Step> + Clone,
{
    worlds(call, programs, count, staging, in_place, 1)
}

/// Like [`world`], with the collective run `times` times without a pause.
pub(super) fn worlds<P>(
    call: Call,
    programs: Vec<P>,
    count: usize,
    staging: Staging,
    in_place: bool,
    times: usize,
) -> World<P>
where
    P: Iterator<Item = Step> + Clone,
{
    let ranks = programs.len() as u32;
    let call = if ranks == 1 { call.on_one_rank() } else { call };
    let (len, element) = (call.parts(ranks) * count, call.data_type(count).size());
    let has = |rank, element| call.has(rank, element, count);
    World::of_inputs(programs, times, len, element, staging.slots, in_place, has)
}
