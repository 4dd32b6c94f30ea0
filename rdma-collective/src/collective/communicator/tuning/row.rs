//! A row of a tuning table, and the rules by which rows fit together. `parse` reads rows, `order` uses them.

use std::fmt;
use std::ops::RangeInclusive;

use super::{Algorithm, Collective, ROWS_MAX};

/// The most ranks that a store serves.
pub(super) const RANKS_MAX: u32 = 65536;

/// The algorithms of a collective for so many ranks and bytes; see [the module](super).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The collective.
    pub collective: Collective,
    /// The numbers of ranks: within 1 to 65536.
    pub ranks: RangeInclusive<u32>,
    /// How the ranks reach each other.
    pub peers: Peers,
    /// The most bytes of each rank's buffer, or of its part; `u64::MAX` for any.
    pub bytes_max: u64,
    /// The algorithms, best first: at least one, and each once.
    pub ways: Vec<Algorithm>,
}

impl Row {
    /// Whether the row is for such an operation, whatever its bytes.
    pub(super) fn is_of(&self, collective: Collective, (ranks, peers): (u32, Peers)) -> bool {
        self.collective == collective && self.peers == peers && self.ranks.contains(&ranks)
    }
}

/// How the ranks of a communicator reach each other.
///
/// A part of [`Row`], and returned by [`Communicator::peers`](crate::collective::Communicator::peers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Peers {
    /// All ranks map each other's memory: ranks of one host, up to 16.
    Mapped,
    /// The ranks have links.
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

    pub(in crate::collective) fn have(self, way: Algorithm) -> bool {
        self == Self::Mapped || !way.needs_mapped()
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Checks a row behind the rows `before`; the error names the mistake.
pub(super) fn check(row: &Row, before: &[Row]) -> Result<(), String> {
    let Row { collective, ranks, peers, bytes_max, ways } = row;
    let (first, last) = (*ranks.start(), *ranks.end());
    // The checks below compare each row with all before it, so the time grows with the square of the rows.
    if before.len() >= ROWS_MAX {
        return Err(format!("there are more than {ROWS_MAX} rows"));
    }
    if first == 0 || last < first || last > RANKS_MAX {
        return Err(format!("{first}-{last} are no ranks; write them from 1 to {RANKS_MAX}, fewest first"));
    }
    if ways.is_empty() {
        return Err("there is no way; write one at least".to_owned());
    }
    for (at, way) in ways.iter().enumerate() {
        // An algorithm that the collective lacks is an error, not skipped: otherwise a misprint would take effect as
        // the next one.
        if !collective.has(*way) {
            let has: Vec<String> = collective.ways().map(|way| way.to_string()).collect();
            return Err(format!("{collective} has no {way}; it has {}", has.join(", ")));
        }
        if !peers.have(*way) {
            return Err(format!("{way} needs peers that are mapped, and these are {peers}"));
        }
        if ways[..at].contains(way) {
            return Err(format!("{way} stands there twice"));
        }
    }
    // Ranks of two rows are equal or have none in common: otherwise it would depend on the order of rows which of them
    // holds.
    for other in before.iter().filter(|other| (other.collective, other.peers) == (*collective, *peers)) {
        if other.ranks == *ranks {
            // Ascending, because `Orders` takes the first row that has room.
            if other.bytes_max >= *bytes_max {
                let (less, more) = (Bytes(*bytes_max), Bytes(other.bytes_max));
                return Err(format!("{less} bytes stand behind {more}; put the rows in order, fewest first"));
            }
        } else if first <= *other.ranks.end() && *other.ranks.start() <= last {
            let (these, those) = (Ranks(ranks), Ranks(&other.ranks));
            return Err(format!(
                "ranks {these} have some in common with {those} of a row before; write the same, or none of them"
            ));
        }
    }
    Ok(())
}

/// Bytes, written as in a file.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == u64::MAX {
            return f.pad("any");
        }
        let units = [(30, "G"), (20, "M"), (10, "K"), (0, "")];
        // The largest unit that divides the bytes, so that the file reads back to the same number.
        let whole = |shift: u32| self.0 > 0 && self.0.trailing_zeros() >= shift;
        let (shift, unit) = units.into_iter().find(|(shift, _)| whole(*shift)).unwrap_or((0, ""));
        f.pad(&format!("{}{unit}", self.0 >> shift))
    }
}

/// Numbers of ranks, written as in a file.
struct Ranks<'a>(&'a RangeInclusive<u32>);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0.start(), self.0.end());
        let text = match *last {
            last if last == *first => first.to_string(),
            RANKS_MAX => format!("{first}-"),
            last => format!("{first}-{last}"),
        };
        f.pad(&text)
    }
}

/// Writes a line of a file.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collective, ranks, peers, bytes_max, ways } = self;
        let ways: Vec<String> = ways.iter().map(Algorithm::to_string).collect();
        let (ranks, bytes) = (Ranks(ranks), Bytes(*bytes_max));
        write!(f, "{collective:<14} {ranks:>5}  {peers:>6}  {bytes:>7}  {}", ways.join(","))
    }
}
