//! How far the links of a rank reach. The table of links makes them; an algorithm names the reach that it needs.

use std::fmt;

/// The set of ranks that each rank has links to. A later variant includes every earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Reach {
    /// The neighbours in the ring.
    #[default]
    Neighbours,
    /// Ranks at distances of powers of two around the ring, in both directions: enough for binomial trees of any root.
    Doublings,
    /// Every other rank.
    All,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Neighbours => "neighbours",
            Self::Doublings => "ranks at distances of powers of two",
            Self::All => "all ranks",
        })
    }
}

impl Reach {
    /// The ranks beyond the neighbours that `rank` has links to, in ascending order. The relation is symmetric, and the
    /// count is the same for all ranks.
    pub(super) fn peers(self, rank: u32, world: u32) -> impl Iterator<Item = u32> {
        (0..world).filter(move |peer| {
            // Steps forward around the ring, without the overflow that `rank + world` could have.
            let distance = if *peer >= rank { peer - rank } else { world - (rank - peer) };
            distance > 1
                && world - distance > 1
                && match self {
                    Self::Neighbours => false,
                    Self::Doublings => distance.is_power_of_two() || (world - distance).is_power_of_two(),
                    Self::All => true,
                }
        })
    }
}
