//! A table as one communicator has it: of its ranks and peers alone, with all ways that it may take, in their order.

use super::{Algorithm, Collective, Peers, Row, Source, Tuning};
use crate::collective::communicator::Algorithms;
use crate::collective::communicator::Spread;

/// The order of ways that no row names.
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

/// See the module.
#[derive(Debug)]
pub(crate) struct Orders {
    /// By collective, and then by bytes; the last of each has no bound.
    of: [Vec<Class>; Collective::ALL.len()],
    /// All ways that there can be, asked for or not.
    possible: Vec<Algorithm>,
    source: String,
}

/// Operations of a collective that go the same ways.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Class {
    bytes_max: u64,
    /// In their order; there is always one among them that needs nothing but links.
    ways: [Option<Algorithm>; ELSE.len()],
    /// What the row has first.
    first: Option<Algorithm>,
    /// Whether that is of the built-in table.
    built_in: bool,
}

impl Orders {
    pub(crate) fn new(
        tuning: &Tuning,
        algorithms: Algorithms,
        (ranks, peers, spread): (u32, Peers, Spread),
        reproducible: bool,
    ) -> Self {
        let (built_in, is_built_in) = (Tuning::default(), tuning.source == Source::BuiltIn);
        let can = |collective: Collective, way: Algorithm| {
            collective.has(way)
                && peers.have(way)
                && spread.has(way)
                && !(reproducible && collective.reduces() && way.has_its_order())
        };
        let possible = |way: &Algorithm| Collective::ALL.into_iter().any(|of| can(of, *way));
        let of = Collective::ALL.map(|collective| {
            let is_of = |row: &&Row| row.is_of(collective, (ranks, peers));
            let own = tuning.rows.iter().filter(is_of).map(|row| (row, is_built_in));
            let all = own.chain(built_in.rows.iter().filter(is_of).map(|row| (row, true)));
            let mut classes: Vec<Class> = Vec::new();
            for (Row { bytes_max, ways, .. }, built_in) in all {
                if classes.last().is_none_or(|last| last.bytes_max < *bytes_max) {
                    let (bytes_max, first) = (*bytes_max, ways.first().copied());
                    let ways =
                        order(ways, |way| algorithms.allow(collective, *way), |way| can(collective, *way));
                    classes.push(Class { bytes_max, ways, first, built_in });
                }
            }
            classes
        });
        let possible = Algorithm::ALL.iter().copied().filter(possible).collect();
        Self { of, possible, source: tuning.source().to_owned() }
    }

    /// Whether there is a collective that can go that way.
    pub(crate) fn have(&self, way: Algorithm) -> bool {
        self.possible.contains(&way)
    }

    /// What an operation on so many bytes goes by.
    pub(crate) fn find(&self, collective: Collective, bytes: u64) -> Class {
        let Some(classes) = self.of.get(collective.index()) else { return Class::default() };
        // The built-in table has all ranks, peers and bytes.
        classes.iter().find(|class| bytes <= class.bytes_max).copied().unwrap_or_default()
    }

    /// Which way was taken, and what said so.
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

/// Those of a row, then all others, of those that are asked for; and then whatever needs links alone.
fn order(
    row: &[Algorithm],
    asked: impl Fn(&Algorithm) -> bool,
    can: impl Fn(&Algorithm) -> bool,
) -> [Option<Algorithm>; ELSE.len()] {
    let all = || row.iter().chain(&ELSE).copied();
    let asked = all().filter(asked);
    let mut ways = [None; ELSE.len()];
    let mut len = 0;
    for way in asked.chain(all().filter(|way| !way.needs_mapped())).filter(can) {
        if len < ways.len() && !ways.contains(&Some(way)) {
            ways[len] = Some(way);
            len += 1;
        }
    }
    ways
}
