//! Algorithms: their names, the collectives that each one can carry out, and the lists of allowed ones (`NCCL_ALGO`).
//! `tuning` says which of the allowed ones a call takes.

use std::fmt;
use std::str::FromStr;

use super::message_bytes_max;
use super::reach::Reach;
use crate::collective::call::Collective;

/// An algorithm for a collective, or the protocol where ranks map each other's memory, by the name that `NCCL_ALGO` has
/// for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Steps around a ring of all ranks; broadcast along a line, and reduce by a chain.
    Ring,
    /// Algorithms of `log2 n` rounds, over links to ranks at distances of powers of two: trees for broadcast, reduce,
    /// gather and scatter, and exchanges at distances that double for all-reduce, all-gather, reduce-scatter and
    /// barrier.
    Tree,
    /// Eager exchange: a message from each rank of a host to each other one, of up to 32 KiB, or of up to 8 KiB between
    /// more than four.
    Flat,
    /// Pipelined: pieces through the shared windows of all ranks of a host, on slices.
    Pieces,
    /// Zero-copy: ranks of a host read and write each other's tensors and regions.
    Direct,
    /// All-to-all in pairs, over links to all ranks.
    Pairs,
    /// All-to-all that relays parts over other ranks (Bruck): fewer messages, and longer ones.
    Bruck,
    /// All-reduce inside each host first, then between hosts, over links to all ranks.
    Hierarchical,
}

/// The [`Algorithm`]s that each collective may take; all of them unless a list says otherwise.
///
/// The text form is a list as NCCL's: names in any case with commas between them, or with `^` before it all other
/// algorithms. Lists for one collective follow, each behind a `;`, with the collective's name and `:` before it. Where
/// none of the allowed algorithms can carry an operation out, the operation goes by links all the same: around the
/// ring, if it has one.
///
/// ```
/// use rdma_collective::collective::tuning::Collective;
/// use rdma_collective::collective::{Algorithm, Algorithms};
///
/// let algorithms: Algorithms = "Ring,Direct;broadcast:tree".parse()?;
/// assert!(algorithms.allow(Collective::AllReduce, Algorithm::Direct));
/// assert!(!algorithms.allow(Collective::Broadcast, Algorithm::Direct));
/// assert_eq!("^ring,direct".parse::<Algorithms>()?.to_string(), "tree,flat,pieces,pairs,bruck,hierarchical");
/// assert!("nvls".parse::<Algorithms>().unwrap_err().to_string().contains("ring, tree, flat, pieces"));
/// # Ok::<(), rdma_collective::collective::UnknownAlgorithm>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Algorithms([Set; TUNED]);

/// A set of algorithms, a bit each.
type Set = u8;
const EVERY: Set = Set::MAX >> (Set::BITS as usize - Algorithm::ALL.len());
/// Number of collectives that have a set.
pub(super) const TUNED: usize = Collective::ALL.len();

/// A list of algorithms has an unknown name, or an empty one.
///
/// Raised where a text is parsed as [`Algorithms`](crate::collective::Algorithms).
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is no algorithm or no collective; there are ring, tree, flat, pieces, direct, pairs, bruck and hierarchical, in a list \
     such as ring,direct or ^pieces, or in several such as ring;all-reduce:tree"
)]
pub struct UnknownAlgorithm {
    /// The word that stands in the list.
    pub name: String,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: &[Self] = &[
        Self::Ring,
        Self::Tree,
        Self::Flat,
        Self::Pieces,
        Self::Direct,
        Self::Pairs,
        Self::Bruck,
        Self::Hierarchical,
    ];

    /// The most bytes of each rank's buffer, or of its part, that the algorithm takes between so many ranks; `None`
    /// where there is no bound.
    ///
    /// ```
    /// use rdma_collective::collective::Algorithm;
    ///
    /// assert_eq!((Algorithm::Flat.bytes_max(2), Algorithm::Flat.bytes_max(8)), (Some(32768), Some(8192)));
    /// assert_eq!(Algorithm::Ring.bytes_max(8), None);
    /// ```
    #[must_use]
    pub const fn bytes_max(self, ranks: u32) -> Option<usize> {
        match self {
            Self::Flat => Some(message_bytes_max(ranks)),
            _ => None,
        }
    }

    /// Whether the algorithm needs ranks that map each other's memory.
    #[must_use]
    pub(crate) const fn needs_mapped(self) -> bool {
        matches!(self, Self::Flat | Self::Pieces | Self::Direct)
    }

    /// Whether the algorithm reduces in another order than the ring, so that results may have other bits.
    pub(super) const fn has_its_order(self) -> bool {
        matches!(self, Self::Tree | Self::Hierarchical)
    }

    /// How far the links of the algorithm reach.
    pub(crate) const fn reach(self) -> Reach {
        match self {
            Self::Ring => Reach::Neighbours,
            Self::Tree | Self::Bruck => Reach::Doublings,
            _ => Reach::All,
        }
    }

    // Bits follow the order of the enum. Ranks compare their sets when they meet, so a new algorithm goes to the end.
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
            Self::Hierarchical => "hierarchical",
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

impl Collective {
    /// The algorithms that there are for the collective.
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

    pub(super) fn has(self, way: Algorithm) -> bool {
        // A root that has a part for each rank: around a ring, nearly all parts would pass through nearly all ranks.
        let by_trees_alone = self.has_root() && self.properties().has_parts;
        let is_tuned = self.index() < TUNED;
        match way {
            Algorithm::Flat => is_tuned,
            Algorithm::Ring => is_tuned && !by_trees_alone && self != Self::AllToAll,
            Algorithm::Direct => is_tuned && !by_trees_alone,
            Algorithm::Pieces => is_tuned && !by_trees_alone && self != Self::Barrier,
            Algorithm::Tree => is_tuned && self != Self::AllToAll,
            Algorithm::Pairs | Algorithm::Bruck => self == Self::AllToAll,
            Algorithm::Hierarchical => self == Self::AllReduce,
        }
    }
}

impl Algorithms {
    /// Whether the collective may take the algorithm.
    #[must_use]
    pub fn allow(self, collective: Collective, algorithm: Algorithm) -> bool {
        // A collective without a set, such as a send, has no choice and so allows no algorithm.
        self.0.get(collective.index()).is_some_and(|set| set & algorithm.bit() != 0)
    }

    /// A set for each collective.
    pub(super) fn bits(self) -> [Set; TUNED] {
        self.0
    }

    /// The sets that another rank announced. Bits that this release does not know are kept, so that errors show them.
    pub(super) fn from_bits(bits: [Set; TUNED]) -> Self {
        Self(bits)
    }

    /// Reads a list in which `elsewhere` are names of others: algorithms, or collectives with their lists. They are
    /// left out and given back. A list that is left empty by that counts as absent.
    pub(crate) fn read(text: &str, elsewhere: &[&str]) -> Result<(Self, Vec<String>), UnknownAlgorithm> {
        let is_elsewhere = |name: &str| elsewhere.iter().any(|other| other.eq_ignore_ascii_case(name));
        let (mut read, mut left_out) = (Self::default(), Vec::new());
        for (at, entry) in text.split(';').enumerate() {
            let (name, list) = entry.split_once(':').map_or((None, entry), |(name, list)| (Some(name), list));
            let of = match name {
                None if at == 0 => None,
                Some(name) if is_elsewhere(name) => {
                    left_out.push(name.to_owned());
                    continue;
                }
                name => Some(collective(name.unwrap_or(entry))?),
            };
            // As in NCCL, one `^` before the list negates all of it, not only the first name.
            let (others, list) = list.strip_prefix('^').map_or((false, list), |list| (true, list));
            let (foreign, ours): (Vec<&str>, Vec<&str>) =
                list.split(',').partition(|name| is_elsewhere(name));
            // An empty name between two commas fails here, because `parse` knows no algorithm of that name.
            let named = ours.iter().try_fold(0, |set, name| Ok(set | name.parse::<Algorithm>()?.bit()))?;
            left_out.extend(foreign.into_iter().map(str::to_owned));
            if ours.is_empty() {
                continue;
            }
            let set = if others { EVERY & !named } else { named };
            match of {
                Some(collective) => read.0[collective.index()] = set,
                // Only the first entry has no name, so this overwrites no collective's own list.
                None => read = Self([set; TUNED]),
            }
        }
        Ok((read, left_out))
    }
}

/// The collective of that name, in any case, with or without dashes.
fn collective(name: &str) -> Result<Collective, UnknownAlgorithm> {
    // NCCL's names have no dashes (`AllReduce`), ours have (`all-reduce`); both are read.
    let plain = |name: &str| name.replace('-', "").to_ascii_lowercase();
    let found = Collective::ALL.into_iter().find(|of| plain(of.name()) == plain(name));
    found.ok_or_else(|| UnknownAlgorithm { name: name.to_owned() })
}

impl Default for Algorithms {
    fn default() -> Self {
        Self([EVERY; TUNED])
    }
}

impl FromIterator<Algorithm> for Algorithms {
    fn from_iter<I: IntoIterator<Item = Algorithm>>(algorithms: I) -> Self {
        Self([algorithms.into_iter().fold(0, |bits, of| bits | of.bit()); TUNED])
    }
}

/// Writes the form that [`FromStr`] reads: first the list that most collectives share, then the lists of the others.
impl fmt::Display for Algorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |set: Set| {
            let names = Algorithm::ALL.iter().filter(|of| set & of.bit() != 0);
            names.map(|of| of.name()).collect::<Vec<_>>().join(",")
        };
        let like = |set: &Set| self.0.iter().filter(|other| *other == set).count();
        let all = self.0.into_iter().max_by_key(like).unwrap_or(EVERY);
        f.write_str(&list(all))?;
        for (collective, set) in Collective::ALL.into_iter().zip(self.0).filter(|(_, set)| *set != all) {
            write!(f, ";{collective}:{}", list(set))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Algorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Algorithms").field(&self.to_string()).finish()
    }
}

impl FromStr for Algorithms {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        Ok(Self::read(text, &[])?.0)
    }
}

#[cfg(test)]
mod tests;
