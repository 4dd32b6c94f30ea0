//! The tuning table as one communicator uses it: only rows for its ranks and peers, with all algorithms that it may
//! take, best first.

use super::{Algorithm, Collective, Peers, Row, Source, Tuning};
use crate::collective::communicator::Algorithms;
use crate::collective::communicator::Spread;

/// Order of the algorithms that a row does not name.
const ELSE: [Algorithm; 8] = [
    Algorithm::Flat,
    Algorithm::Direct,
    Algorithm::Ring,
    Algorithm::Tree,
    Algorithm::Hierarchical,
    Algorithm::Pieces,
    Algorithm::Pairs,
    Algorithm::Bruck,
];

/// The algorithms of each collective in one communicator, by bytes. Computed once, so that a call only looks it up.
#[derive(Debug)]
pub(crate) struct Orders {
    /// Classes by collective, then by bytes, ascending; the last class of each has no bound.
    of: [Vec<Class>; Collective::ALL.len()],
    /// All algorithms that are possible here, allowed by the options or not.
    possible: Vec<Algorithm>,
    source: String,
}

/// The operations of a collective up to so many bytes, which take the same algorithms.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Class {
    bytes_max: u64,
    /// The algorithms, best first. At least one of them needs nothing but links, so an operation can always be carried
    /// out.
    ways: [Option<Algorithm>; ELSE.len()],
    /// The first algorithm of the row, allowed or not.
    first: Option<Algorithm>,
    /// Whether the row is from the built-in table.
    built_in: bool,
}

impl Orders {
    pub(crate) fn new(
        tuning: &Tuning,
        algorithms: Algorithms,
        (ranks, peers, spread): (u32, Peers, Spread),
        reproducible: bool,
    ) -> Self {
        let (built_in, is_built_in) = (Tuning::built_in(spread), tuning.source == Source::BuiltIn);
        // Possible, whatever is allowed: links that exist, memory that is mapped, several hosts.
        let can = |collective: Collective, way: Algorithm| {
            collective.has(way)
                && peers.have(way)
                && spread.has(way)
                // Reproducible sums must not depend on the algorithm, so one with an order of its own is out.
                && !(reproducible && collective.properties().reduces && way.has_its_order())
        };
        let possible = |way: &Algorithm| Collective::ALL.into_iter().any(|of| can(of, *way));
        let of = Collective::ALL.map(|collective| {
            let is_of = |row: &&Row| row.is_of(collective, (ranks, peers));
            // Own rows first, then the built-in ones: a row counts only above the sizes that rows before it cover.
            let own = tuning.rows.iter().filter(|_| !is_built_in).filter(is_of).map(|row| (row, false));
            let all = own.chain(built_in.rows.iter().filter(is_of).map(|row| (row, true)));
            let mut classes: Vec<Class> = Vec::new();
            for (Row { bytes_max, ways, .. }, built_in) in all {
                // A built-in row that ends below the last own one is covered already.
                if classes.last().is_none_or(|last| last.bytes_max < *bytes_max) {
                    // Kept although it may not be allowed: the log says which algorithm was taken in its place.
                    let (bytes_max, first) = (*bytes_max, ways.first().copied());
                    let ways =
                        order(ways, |way| algorithms.allow(collective, *way), |way| can(collective, *way));
                    // The order is worked out here, once a communicator, so that a call only copies it.
                    classes.push(Class { bytes_max, ways, first, built_in });
                }
            }
            classes
        });
        let possible = Algorithm::ALL.iter().copied().filter(possible).collect();
        Self { of, possible, source: tuning.source().to_owned() }
    }

    /// Whether some collective can take the algorithm here.
    pub(crate) fn have(&self, way: Algorithm) -> bool {
        self.possible.contains(&way)
    }

    /// Returns the algorithms of an operation on so many bytes.
    pub(crate) fn find(&self, collective: Collective, bytes: u64) -> Class {
        let Some(classes) = self.of.get(collective.index()) else { return Class::default() };
        // Always found, because the built-in table covers all ranks, peers and bytes.
        classes.iter().find(|class| bytes <= class.bytes_max).copied().unwrap_or_default()
    }

    /// Text for the log: the algorithm that the row has first, if another was taken, and the row's source.
    pub(crate) fn said(&self, class: Class, taken: Algorithm) -> String {
        let source = if class.built_in { "built in" } else { &self.source };
        match class.first.filter(|first| *first != taken) {
            Some(first) => format!("in place of {first} ({source})"),
            None => format!("({source})"),
        }
    }
}

impl Class {
    pub(crate) fn ways(&self) -> impl Iterator<Item = Algorithm> + use<> {
        self.ways.into_iter().flatten()
    }
}

/// The row's algorithms and then all others, as far as allowed; and then those that need links alone, allowed or not,
/// because an operation must always have one.
fn order(
    row: &[Algorithm],
    asked: impl Fn(&Algorithm) -> bool,
    can: impl Fn(&Algorithm) -> bool,
) -> [Option<Algorithm>; ELSE.len()] {
    let all = || row.iter().chain(&ELSE).copied();
    // `ELSE` behind the row: an algorithm that is allowed but not in the row is still better than one that is not
    // allowed.
    let asked = all().filter(asked);
    let mut ways = [None; ELSE.len()];
    let mut len = 0;
    for way in asked.chain(all().filter(|way| !way.needs_mapped())).filter(can) {
        // An algorithm comes up several times; its first place counts.
        if len < ways.len() && !ways.contains(&Some(way)) {
            ways[len] = Some(way);
            len += 1;
        }
    }
    ways
}
