//! The built-in tuning table, for whatever no other table covers; `docs/defaults.md` argues each row.

use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use super::row::RANKS_MAX as ANY;
use super::{Algorithm, Collective, Peers, Row};
use crate::collective::communicator::message_bytes_max;
use Algorithm::{Bruck, Direct, Flat, Pairs, Pieces, Ring, Tree};

/// The most ranks that map each other's memory on a host.
const NEAR: u32 = crate::collective::communicator::RANKS_MAX;
/// Ranks above which short parts of an all-to-all take Bruck.
const FEW: u32 = 4;
/// Bytes of a part up to which an all-to-all takes Bruck, which sends each part several times.
const SHORT: u64 = 256;
/// Bytes a rank above which the latency of a ring is less than a tenth of its time: sixteen times the bytes that pass a
/// link in the latency of a message.
const LATENCY_OF_NO_ACCOUNT: u64 = 1 << 20;

/// Bytes up to which the eager exchange is fastest between so many ranks of a host. An eager message may hold more
/// where each rank would reduce all of it for more than two ranks: 16 KiB then.
fn message(collective: Collective, ranks: u32) -> u64 {
    let most = message_bytes_max(ranks) as u64;
    let reduces_all = matches!(collective, Collective::AllReduce | Collective::Reduce);
    if reduces_all && ranks > 2 { most.min(16 * 1024) } else { most }
}

pub(super) fn rows() -> Arc<[Row]> {
    // Built once and shared, because each communicator and each digest asks for it.
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
            // No zero-copy and no pipelined protocol carries these, so a tree over links takes what is too long for a
            // message.
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
                // Bruck pays only between many ranks: with few, pairs send hardly more messages, and each byte once.
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
        // Rows for links cover every number of ranks and every size: `Orders::find` relies on a row for each call.
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
            Barrier => self.rows(collective, 1..=ANY, Peers::Links, &[(u64::MAX, &[Tree, Ring])]),
            AllGather | ReduceScatter => {
                let rows: [(u64, &[Algorithm]); 2] =
                    [(LATENCY_OF_NO_ACCOUNT / 4, &[Tree, Ring]), (u64::MAX, &[Ring, Tree])];
                self.rows(collective, 1..=ANY, Peers::Links, &rows);
            }
            _ => {
                // The ring's latency grows with its ranks, and so do the bytes that take as long.
                for bits in 1..=ANY.ilog2() {
                    let ranks = 1 << bits;
                    let first = if bits == 1 { 1 } else { ranks / 2 + 1 };
                    let rows: [(u64, &[Algorithm]); 2] = [
                        (LATENCY_OF_NO_ACCOUNT * u64::from(ranks), &[Tree, Ring]),
                        (u64::MAX, &[Ring, Tree]),
                    ];
                    self.rows(collective, first..=ranks, Peers::Links, &rows);
                }
            }
        }
    }

    /// Adds the rows of a collective that is zero-copy beyond eager messages, or pipelined on borrowed slices.
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
