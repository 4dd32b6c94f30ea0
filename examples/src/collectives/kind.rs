//! The collectives that have a program, and what nccl-tests' contract is for each.

use rdma_collective::collective::tuning;

/// The collective that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every rank gets the reduction of all.
    AllReduce,
    /// Every rank gets the parts of all.
    AllGather,
    /// Every rank gets its part of the reduction.
    ReduceScatter,
    /// Every rank gets what the root has.
    Broadcast,
    /// The root gets the reduction of all.
    Reduce,
    /// Every rank gets its part of what each has.
    AllToAll,
    /// The root gets the parts of all.
    Gather,
    /// Every rank gets its part of what the root has.
    Scatter,
    /// Every rank gets what the one before it has; each send is of two ranks alone.
    SendRecv,
}

impl Collective {
    /// Every collective that has a program.
    pub const ALL: &[Self] = &[
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
        Self::SendRecv,
    ];

    /// Name of the program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "allreduce",
            Self::AllGather => "allgather",
            Self::ReduceScatter => "reducescatter",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllToAll => "alltoall",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::SendRecv => "sendrecv",
        }
    }

    /// Returns the first line of the program's help.
    pub fn about(self) -> String {
        let (what, twin) = match self {
            Self::AllReduce => ("All-reduce", "all_reduce_perf"),
            Self::AllGather => ("All-gather", "all_gather_perf"),
            Self::ReduceScatter => ("Reduce-scatter", "reduce_scatter_perf"),
            Self::Broadcast => ("Broadcast", "broadcast_perf"),
            Self::Reduce => ("Reduce", "reduce_perf"),
            Self::AllToAll => ("All-to-all", "alltoall_perf"),
            Self::Gather => ("Gather", "gather_perf"),
            Self::Scatter => ("Scatter", "scatter_perf"),
            Self::SendRecv => ("Sends around a ring", "sendrecv_perf"),
        };
        format!("{what} among ranks, each a process, measured and checked as nccl-tests' {twin} does")
    }

    /// As a table of ways has it, where it is in one.
    pub const fn tuned(self) -> Option<tuning::Collective> {
        Some(match self {
            Self::AllReduce => tuning::Collective::AllReduce,
            Self::AllGather => tuning::Collective::AllGather,
            Self::ReduceScatter => tuning::Collective::ReduceScatter,
            Self::Broadcast => tuning::Collective::Broadcast,
            Self::Reduce => tuning::Collective::Reduce,
            Self::AllToAll => tuning::Collective::AllToAll,
            Self::Gather => tuning::Collective::Gather,
            Self::Scatter => tuning::Collective::Scatter,
            Self::SendRecv => return None,
        })
    }

    /// Whether elements of several ranks become one.
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Whether one rank is another than the others.
    pub const fn is_rooted(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter)
    }

    /// Whether the whole has a part for each rank: `size` is then of the whole, and `count` of a part.
    pub const fn has_parts(self) -> bool {
        !matches!(self, Self::AllReduce | Self::Broadcast | Self::Reduce | Self::SendRecv)
    }

    /// Bus bandwidth over algorithm bandwidth: what each link must carry of the bytes of the whole; the root's, where
    /// all bytes go by it.
    pub fn bus_factor(self, ranks: usize) -> f64 {
        let n = ranks.max(1) as f64;
        match self {
            Self::AllReduce => 2.0 * (n - 1.0) / n,
            Self::Broadcast | Self::Reduce | Self::SendRecv => 1.0,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::Gather | Self::Scatter => {
                (n - 1.0) / n
            }
        }
    }

    /// Returns the lengths of an operation on at most so many elements.
    pub fn shape(self, elements: usize, ranks: usize) -> Shape {
        let ranks = ranks.max(1);
        let count = if self.has_parts() { elements / ranks } else { elements };
        let whole = if self.has_parts() { count * ranks } else { count };
        let (input, output) = match self {
            Self::AllGather | Self::Gather => (count, whole),
            Self::ReduceScatter | Self::Scatter => (whole, count),
            Self::AllReduce | Self::Broadcast | Self::Reduce | Self::AllToAll | Self::SendRecv => {
                (whole, whole)
            }
        };
        Shape { count, whole, input, output }
    }
}

/// Elements of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Elements as callers count them: of a part, where there are parts.
    pub count: usize,
    /// Elements of all parts, which is the buffer in place.
    pub whole: usize,
    /// Elements of the input out of place.
    pub input: usize,
    /// Elements of the output out of place.
    pub output: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_factors_are_nccl_tests() {
        let factors = |ranks| Collective::ALL.iter().map(|one| one.bus_factor(ranks)).collect::<Vec<_>>();
        assert_eq!(factors(1), [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
        assert_eq!(factors(2), [1.0, 0.5, 0.5, 1.0, 1.0, 0.5, 0.5, 0.5, 1.0]);
        assert_eq!(factors(8), [1.75, 0.875, 0.875, 1.0, 1.0, 0.875, 0.875, 0.875, 1.0]);
    }

    #[test]
    fn sizes_are_of_the_whole_and_counts_of_a_part() {
        let shape = |count, whole, input, output| Shape { count, whole, input, output };
        let shapes = Collective::ALL.iter().map(|one| one.shape(11, 4)).collect::<Vec<_>>();
        let (whole, all) = (shape(11, 11, 11, 11), shape(2, 8, 8, 8));
        let (grows, shrinks) = (shape(2, 8, 2, 8), shape(2, 8, 8, 2));
        assert_eq!(shapes, [whole, grows, shrinks, whole, whole, all, grows, shrinks, whole]);
        assert_eq!(Collective::AllGather.shape(3, 4), shape(0, 0, 0, 0));
    }
}
