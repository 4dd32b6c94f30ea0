//! A rank, together with the number of ranks.

/// A rank of a communicator, and the number of ranks.
///
/// Two bare numbers of the same type could be swapped unnoticed. Named fields cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collective) struct RankOf {
    /// The rank, from 0 to `size - 1`.
    pub(in crate::collective) rank: u32,
    /// The number of ranks, at least 1.
    pub(in crate::collective) size: u32,
}
