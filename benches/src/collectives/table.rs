//! Tables: an operation, a type, the sides that do it, and the bounds of the ratios.

use rdma_collective::collective::DataType;

use crate::ratio::Bound;
use crate::report::Report;

use super::{Network, Pairs, Setup, Side};

/// A table, as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub enum Table {
    /// All-reduce of `f32`: on memory of the library's, on slices, and the machine's limit.
    AllReduce,
    /// All-reduce of `f16`.
    Half,
    /// All-reduce of `bf16`.
    Bfloat16,
    /// A part of each rank.
    AllGather,
    /// Sums, of which each rank gets a part.
    ReduceScatter,
    /// From rank 0.
    Broadcast,
    /// A part of each rank's for each rank.
    AllToAll,
    /// All-reduce of `f32` over TCP.
    Tcp,
}

/// The operation of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sums.
    AllReduce,
    /// See [`Table::AllGather`].
    AllGather,
    /// See [`Table::ReduceScatter`].
    ReduceScatter,
    /// See [`Table::Broadcast`].
    Broadcast,
    /// See [`Table::AllToAll`]; out of place, which is what others are fast at.
    AllToAll,
}

/// A table of ratios: the best of some over one, at each size and in the mean.
pub struct Ratios {
    /// The text behind the operation's name.
    pub of: &'static str,
    /// The side whose times divide the others'.
    pub over: Side,
    /// The best of these counts.
    pub among: &'static [Side],
    /// The bound of every size.
    pub each: Bound,
    /// The bound of the geometric mean.
    pub mean: Bound,
    /// Whether a size that is measured has a row.
    pub sizes: fn(usize) -> bool,
}

const MPIS: &[Side] = &[Side::IntelMpi, Side::OpenMpi];
const PEERS: &[Side] = &[Side::IntelMpi, Side::OpenMpi, Side::Gloo];

const fn any(_bytes: usize) -> bool {
    true
}

/// Where slices are compared.
pub(super) const fn large(bytes: usize) -> bool {
    bytes >= 64 << 10
}

/// Where it is asked what the machine gives.
pub(super) const fn limited(bytes: usize) -> bool {
    matches!(bytes, FOUR_MIB | SIXTEEN_MIB)
}

const FOUR_MIB: usize = 4 << 20;
const SIXTEEN_MIB: usize = 16 << 20;

const ALL_REDUCE: &[Ratios] = &[
    Ratios {
        of: "",
        over: Side::Owned,
        among: PEERS,
        each: Bound::AtLeast(1.0),
        mean: Bound::AtLeast(1.5),
        sizes: any,
    },
    Ratios {
        of: ", the machine's limit",
        over: Side::Owned,
        among: &[Side::Limit],
        each: Bound::AtLeast(0.9),
        mean: Bound::Told,
        sizes: limited,
    },
    Ratios {
        of: ", cores alone",
        over: Side::Owned,
        among: &[Side::Cores],
        each: Bound::Told,
        mean: Bound::Told,
        sizes: limited,
    },
    Ratios {
        of: ", borrowed slices against the library's memory",
        over: Side::Borrowed,
        among: &[Side::Owned],
        each: Bound::AtLeast(0.7),
        mean: Bound::Told,
        sizes: large,
    },
    Ratios {
        of: ", borrowed slices",
        over: Side::Borrowed,
        among: PEERS,
        each: Bound::Told,
        mean: Bound::AtLeast(1.0),
        sizes: large,
    },
];
const HALF: &[Ratios] = &[Ratios {
    of: "",
    over: Side::Owned,
    among: PEERS,
    each: Bound::Told,
    mean: Bound::AtLeast(1.5),
    sizes: any,
}];
const OTHERS: &[Ratios] = &[Ratios {
    of: "",
    over: Side::Owned,
    among: MPIS,
    each: Bound::AtLeast(0.8),
    mean: Bound::AtLeast(1.2),
    sizes: any,
}];
const TCP: &[Ratios] = &[Ratios {
    of: " over TCP",
    over: Side::Tcp,
    among: &[Side::Gloo],
    each: Bound::AtLeast(1.0),
    mean: Bound::Told,
    sizes: any,
}];

const LOOPBACK_ALL_REDUCE: &[Ratios] = &[Ratios {
    of: " over TCP",
    over: Side::Tcp,
    among: PEERS,
    each: Bound::AtLeast(0.8),
    mean: Bound::AtLeast(1.0),
    sizes: any,
}];
const LOOPBACK: &[Ratios] = &[Ratios {
    of: " over TCP",
    over: Side::Tcp,
    among: &[Side::OpenMpi],
    each: Bound::AtLeast(0.7),
    mean: Bound::AtLeast(1.0),
    sizes: any,
}];
const SPREAD: &[Ratios] = &[Ratios {
    of: super::network::SPREAD,
    over: Side::Owned,
    among: &[Side::OpenMpi],
    each: Bound::AtLeast(1.0),
    mean: Bound::Told,
    sizes: any,
}];

impl Table {
    /// The operation.
    #[must_use]
    pub const fn operation(self) -> Operation {
        match self {
            Self::AllReduce | Self::Half | Self::Bfloat16 | Self::Tcp => Operation::AllReduce,
            Self::AllGather => Operation::AllGather,
            Self::ReduceScatter => Operation::ReduceScatter,
            Self::Broadcast => Operation::Broadcast,
            Self::AllToAll => Operation::AllToAll,
        }
    }

    /// With elements of which type.
    #[must_use]
    pub const fn data_type(self) -> DataType {
        match self {
            Self::Half => DataType::F16,
            Self::Bfloat16 => DataType::Bf16,
            _ => DataType::F32,
        }
    }

    /// The type's name in peers' benches.
    pub(super) const fn type_at_peers(self) -> &'static str {
        match self {
            Self::Half => "f16",
            Self::Bfloat16 => "bf16",
            _ => "f32",
        }
    }

    const fn ratios(self, network: &Network) -> &'static [Ratios] {
        match (network, self) {
            (Network::Loopback, Self::AllReduce) => LOOPBACK_ALL_REDUCE,
            (Network::Loopback, _) => LOOPBACK,
            (Network::Spread(_), _) => SPREAD,
            (Network::Host, Self::AllReduce) => ALL_REDUCE,
            (Network::Host, Self::Half | Self::Bfloat16) => HALF,
            (Network::Host, Self::Tcp) => TCP,
            (Network::Host, _) => OTHERS,
        }
    }

    /// All who take part.
    #[must_use]
    pub fn sides(self, network: &Network) -> Vec<Side> {
        let mut sides = Vec::new();
        let ratios = self.ratios(network).iter();
        for side in ratios.flat_map(|ratios| std::iter::once(&ratios.over).chain(ratios.among)) {
            if !sides.contains(side) {
                sides.push(*side);
            }
        }
        sides
    }

    /// Sizes in bytes, of a rank's buffer or of the parts of all ranks, unless others are asked for.
    #[must_use]
    pub fn sizes(self) -> Vec<usize> {
        match self {
            Self::AllReduce => (3..=26).map(|bits| 1 << bits).collect(),
            Self::Tcp => vec![1 << 20, 16 << 20],
            // An MPI that adds each number by itself takes seconds for more.
            Self::Half | Self::Bfloat16 => (2..=12).map(|bits| 1 << (2 * bits)).collect(),
            _ => (2..=13).map(|bits| 1 << (2 * bits)).collect(),
        }
    }

    /// The sizes that so many ranks can share evenly, where each has a part.
    #[must_use]
    pub fn shared(self, mut sizes: Vec<usize>, ranks: u32) -> Vec<usize> {
        let is_whole = matches!(self.operation(), Operation::AllReduce | Operation::Broadcast);
        let parts = if is_whole { 1 } else { ranks as usize };
        sizes.retain(|bytes| *bytes > 0 && bytes.is_multiple_of(parts * self.data_type().size()));
        sizes
    }

    /// Prints all that is told of it; whether all of that holds.
    #[must_use]
    pub fn print(self, setup: &Setup, pairs: &Pairs, report: &mut Report) -> bool {
        let title = format!("{} {}, {} ranks", self.operation().name(), self.type_at_peers(), setup.ranks);
        let all = self.ratios(&setup.network).iter().map(|ratios| {
            let (lines, holds) = pairs.print(&format!("{title}{}", ratios.of), ratios);
            lines.into_iter().for_each(|line| report.line(line));
            holds
        });
        all.fold(true, |all_hold, holds| all_hold & holds)
    }
}

impl Operation {
    const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::Broadcast => "broadcast",
            Self::AllToAll => "all-to-all",
        }
    }

    /// The operation's name in peers' benches.
    pub(super) const fn at_peers(self) -> &'static str {
        match self {
            Self::AllReduce => "allreduce",
            Self::AllGather => "allgather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "bcast",
            Self::AllToAll => "alltoall",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_whole_elements() {
        assert_eq!(Table::AllToAll.shared(vec![0, 4, 8, 16, 24], 4), [16]);
        assert_eq!(Table::Half.shared(vec![1, 2, 3], 4), [2]);
        let sides = Table::AllReduce.sides(&Network::Host);
        assert_eq!(sides[0], Side::Owned);
        assert!(sides.contains(&Side::Limit) && sides.contains(&Side::Borrowed) && sides.len() == 7);
    }
}
