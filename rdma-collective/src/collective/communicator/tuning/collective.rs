//! What a row is of: a collective, and how ranks reach each other.

use std::fmt;

use super::Algorithm;

/// A collective that a [`Row`](super::Row) is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Collective {
    /// `all-reduce`
    AllReduce,
    /// `all-gather`
    AllGather,
    /// `reduce-scatter`
    ReduceScatter,
    /// `broadcast`
    Broadcast,
    /// `reduce`
    Reduce,
    /// `barrier`
    Barrier,
    /// `gather`
    Gather,
    /// `scatter`
    Scatter,
    /// `all-to-all`
    AllToAll,
}

impl Collective {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::Barrier,
        Self::Gather,
        Self::Scatter,
        Self::AllToAll,
    ];

    pub(in super::super) const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Barrier => "barrier",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::AllToAll => "all-to-all",
        }
    }

    /// The ways that there are for it.
    ///
    /// ```
    /// use rdma_collective::collective::Algorithm;
    /// use rdma_collective::collective::tuning::Collective;
    ///
    /// let ways: Vec<_> = Collective::AllToAll.ways().collect();
    /// assert_eq!(ways[..3], [Algorithm::Flat, Algorithm::Pieces, Algorithm::Direct]);
    /// assert_eq!(ways[3..], [Algorithm::Pairs, Algorithm::Bruck]);
    /// ```
    pub fn ways(self) -> impl Iterator<Item = Algorithm> {
        Algorithm::ALL.iter().copied().filter(move |way| self.has(*way))
    }

    pub(super) const fn has(self, way: Algorithm) -> bool {
        let by_trees_alone = matches!(self, Self::Gather | Self::Scatter);
        match way {
            Algorithm::Flat => true,
            Algorithm::Ring => !by_trees_alone && !matches!(self, Self::AllToAll),
            Algorithm::Direct => !by_trees_alone,
            Algorithm::Pieces => !by_trees_alone && !matches!(self, Self::Barrier),
            Algorithm::Tree => matches!(
                self,
                Self::AllReduce | Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter
            ),
            Algorithm::Pairs | Algorithm::Bruck => matches!(self, Self::AllToAll),
            Algorithm::Hierarchical => matches!(self, Self::AllReduce),
        }
    }

    /// Whether elements of several ranks become one.
    pub(super) const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How the ranks of a communicator reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Peers {
    /// All of them map each other's memory: ranks of one host, up to 16.
    Mapped,
    /// By links.
    Links,
}

impl Peers {
    pub(super) const ALL: [Self; 2] = [Self::Mapped, Self::Links];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Links => "links",
        }
    }

    pub(in super::super) fn have(self, way: Algorithm) -> bool {
        self == Self::Mapped || !way.needs_mapped()
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
