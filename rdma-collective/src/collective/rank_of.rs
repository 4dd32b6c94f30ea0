//! A rank among how many.

/// One rank of a communicator, and how many ranks there are.
///
/// The two numbers are alike to the compiler and differ by one at the last rank: with a name each they cannot change places unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collective) struct RankOf {
    /// From 0 on.
    pub(in crate::collective) rank: u32,
    /// At least 1.
    pub(in crate::collective) size: u32,
}
