//! The table that holds where no other does; `docs/defaults.md` says why each row is as it is.

use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use super::row::RANKS_MAX as ANY;
use super::{Algorithm, Collective, Peers, Row};
use crate::collective::communicator::message_bytes_max;
use Algorithm::{Bruck, Direct, Flat, Pairs, Pieces, Ring, Tree};

/// Ranks of a host, at most.
const NEAR: u32 = crate::collective::communicator::RANKS_MAX;
/// From more ranks than so many on, and up to so many bytes for each, parts of an all-to-all go by others on their way.
const FEW: u32 = 4;
const SHORT: u64 = 256;

/// What a message between so many ranks of a host is faster for: all that it can have, unless one rank is to reduce all of it, of more
/// than two.
fn message(collective: Collective, ranks: u32) -> u64 {
    let most = message_bytes_max(ranks) as u64;
    let reduces_all = matches!(collective, Collective::AllReduce | Collective::Reduce);
    if reduces_all && ranks > 2 { most.min(16 * 1024) } else { most }
}

pub(super) fn rows() -> Arc<[Row]> {
    static ROWS: LazyLock<Arc<[Row]>> = LazyLock::new(|| {
        let mut table = Table(Vec::new());
        Collective::ALL.into_iter().for_each(|collective| table.add(collective));
        table.0.into()
    });
    Arc::clone(&ROWS)
}

struct Table(Vec<Row>);

impl Table {
    fn add(&mut self, collective: Collective) {
        use Collective::*;
        match collective {
            AllReduce | Reduce => {
                [2..=2, 3..=FEW, FEW + 1..=NEAR].into_iter().for_each(|ranks| self.near(collective, ranks));
            }
            Barrier => self.rows(collective, 2..=NEAR, Peers::Mapped, &[(u64::MAX, &[Flat, Direct, Ring])]),
            Gather | Scatter => {
                for ranks in [2..=FEW, FEW + 1..=NEAR] {
                    let message = message(collective, *ranks.end());
                    self.rows(
                        collective,
                        ranks,
                        Peers::Mapped,
                        &[(message, &[Flat, Tree]), (u64::MAX, &[Tree])],
                    );
                }
            }
            AllToAll => {
                let messages: &[Algorithm] = &[Flat, Direct, Pieces, Pairs];
                let long: (u64, &[Algorithm]) = (u64::MAX, &[Direct, Pieces, Pairs]);
                self.rows(collective, 2..=FEW, Peers::Mapped, &[(message(collective, FEW), messages), long]);
                let short: (u64, &[Algorithm]) = (SHORT, &[Flat, Direct, Pieces, Bruck]);
                let rest = [short, (message(collective, NEAR), messages), long];
                self.rows(collective, FEW + 1..=NEAR, Peers::Mapped, &rest);
            }
            _ => {
                [2..=FEW, FEW + 1..=NEAR].into_iter().for_each(|ranks| self.near(collective, ranks));
            }
        }
        match collective {
            Gather | Scatter => self.rows(collective, 1..=ANY, Peers::Links, &[(u64::MAX, &[Tree])]),
            AllToAll => {
                self.rows(collective, 1..=FEW, Peers::Links, &[(u64::MAX, &[Pairs])]);
                self.rows(
                    collective,
                    FEW + 1..=ANY,
                    Peers::Links,
                    &[(SHORT, &[Bruck]), (u64::MAX, &[Pairs])],
                );
            }
            _ => self.rows(collective, 1..=ANY, Peers::Links, &[(u64::MAX, &[Ring])]),
        }
    }

    /// What is read where it lies, or else passed in pieces.
    fn near(&mut self, collective: Collective, ranks: RangeInclusive<u32>) {
        let rows: [(u64, &[Algorithm]); 2] = [
            (message(collective, *ranks.end()), &[Flat, Direct, Pieces, Ring]),
            (u64::MAX, &[Direct, Pieces, Ring]),
        ];
        self.rows(collective, ranks, Peers::Mapped, &rows);
    }

    fn rows(
        &mut self,
        collective: Collective,
        ranks: RangeInclusive<u32>,
        peers: Peers,
        rows: &[(u64, &[Algorithm])],
    ) {
        self.0.extend(rows.iter().map(|&(bytes_max, ways)| Row {
            collective,
            ranks: ranks.clone(),
            peers,
            bytes_max,
            ways: ways.to_vec(),
        }));
    }
}
