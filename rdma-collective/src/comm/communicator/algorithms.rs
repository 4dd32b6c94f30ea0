//! Which ways operations may take.

use std::fmt;
use std::str::FromStr;

use super::MESSAGE_BYTES_MAX;

/// A way to carry a collective out, by the name that `NCCL_ALGO` has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Around a ring of all ranks; broadcast along a line, and reduce by a chain.
    Ring,
    /// Trees for broadcast, reduce, gather and scatter, and halving and doubling for all-reduce, over links beyond the ring.
    Tree,
    /// One message from each rank of a host to each other one, of up to 8 KiB.
    Flat,
    /// Pieces in the windows of all ranks of a host, on slices.
    Pieces,
    /// Tensors and regions of all ranks of a host, reduced where they lie.
    Direct,
    /// All-to-all in pairs, over links to all ranks.
    Pairs,
    /// All-to-all by others' ranks, in messages that are fewer and longer.
    Bruck,
}

/// A set of [`Algorithm`]s; all of them unless others are asked for.
///
/// Read from text it is a list as NCCL's: names in any case with commas between them, or with `^` before it all others. Where
/// none of them can carry an operation out it goes by links all the same: around the ring, if it has one.
///
/// ```
/// use rdma_collective::comm::{Algorithm, Algorithms};
///
/// let algorithms: Algorithms = "Ring,Direct".parse()?;
/// assert!(algorithms.contains(Algorithm::Direct) && !algorithms.contains(Algorithm::Pieces));
/// assert_eq!("^ring,direct".parse::<Algorithms>()?.to_string(), "tree,flat,pieces,pairs,bruck");
/// assert!("nvls".parse::<Algorithms>().unwrap_err().to_string().contains("ring, tree, flat, pieces"));
/// # Ok::<(), rdma_collective::comm::UnknownAlgorithm>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Algorithms(u8);

/// A list of algorithms has a name that is none, or has no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is no algorithm; there are ring, tree, flat, pieces, direct, pairs and bruck, in a list such as ring,direct or ^pieces"
)]
pub struct UnknownAlgorithm {
    /// What stands there instead.
    pub name: String,
}

impl Algorithm {
    /// All of them.
    pub const ALL: &[Self] =
        &[Self::Ring, Self::Tree, Self::Flat, Self::Pieces, Self::Direct, Self::Pairs, Self::Bruck];

    /// The most bytes of each rank's buffer, or of its part, that go this way; `None` where there is no bound.
    ///
    /// ```
    /// use rdma_collective::comm::Algorithm;
    ///
    /// assert_eq!((Algorithm::Flat.bytes_max(), Algorithm::Ring.bytes_max()), (Some(8192), None));
    /// ```
    #[must_use]
    pub const fn bytes_max(self) -> Option<usize> {
        match self {
            Self::Flat => Some(MESSAGE_BYTES_MAX),
            _ => None,
        }
    }

    /// Whether it needs ranks that map each other's memory.
    #[must_use]
    pub const fn needs_mapped(self) -> bool {
        matches!(self, Self::Flat | Self::Pieces | Self::Direct)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::Flat => "flat",
            Self::Pieces => "pieces",
            Self::Direct => "direct",
            Self::Pairs => "pairs",
            Self::Bruck => "bruck",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let named = Self::ALL.iter().copied().find(|of| of.name().eq_ignore_ascii_case(name));
        named.ok_or_else(|| UnknownAlgorithm { name: name.to_owned() })
    }
}

impl Algorithms {
    /// Whether it is one of them.
    #[must_use]
    pub fn contains(self, algorithm: Algorithm) -> bool {
        self.0 & algorithm.bit() != 0
    }

    fn iter(self) -> impl Iterator<Item = Algorithm> {
        Algorithm::ALL.iter().copied().filter(move |of| self.contains(*of))
    }

    pub(super) fn bits(self) -> u8 {
        self.0
    }

    /// Of what another rank has said; what this release does not know is told as it came.
    pub(super) fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
}

impl Default for Algorithms {
    fn default() -> Self {
        Algorithm::ALL.iter().copied().collect()
    }
}

impl FromIterator<Algorithm> for Algorithms {
    fn from_iter<I: IntoIterator<Item = Algorithm>>(algorithms: I) -> Self {
        Self(algorithms.into_iter().fold(0, |bits, of| bits | of.bit()))
    }
}

impl fmt::Display for Algorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Algorithm::name).collect();
        f.write_str(&names.join(","))
    }
}

impl fmt::Debug for Algorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromStr for Algorithms {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        let (others, list) = text.strip_prefix('^').map_or((false, text), |list| (true, list));
        let named: Self = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
        Ok(if others { Self(Self::default().0 & !named.0) } else { named })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_in_any_case_and_come_back() {
        for (text, expected) in [
            ("ring", "ring"),
            ("Tree,RING", "ring,tree"),
            ("flat,flat", "flat"),
            ("^Pieces", "ring,tree,flat,direct,pairs,bruck"),
        ] {
            let read: Algorithms = text.parse().unwrap();
            assert_eq!(read.to_string(), expected);
            assert_eq!(Algorithms::from_bits(read.bits()), read);
        }
        assert_eq!(Algorithms::default().to_string(), "ring,tree,flat,pieces,direct,pairs,bruck");
    }

    #[test]
    fn an_unknown_algorithm_is_quoted_beside_those_there_are() {
        for (text, name) in
            [("nvls", "nvls"), ("ring,,tree", ""), ("", ""), ("^", ""), ("ring tree", "ring tree")]
        {
            let error = text.parse::<Algorithms>().unwrap_err();
            assert_eq!(error.name, name);
            assert!(error.to_string().contains("ring, tree, flat, pieces, direct"), "{error}");
        }
    }
}
