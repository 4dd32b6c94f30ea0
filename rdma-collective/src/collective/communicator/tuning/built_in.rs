//! The built-in tuning table, for whatever no other table covers; `docs/defaults.md` argues each row.

use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use super::row::RANKS_MAX as ANY;
use super::{Algorithm, Collective, Peers, Row};
use crate::collective::communicator::Spread;
use crate::collective::communicator::message_bytes_max;
use Algorithm::{Bruck, Direct, Flat, Pairs, Pieces, Ring, Tree};

/// The most ranks that map each other's memory on a host.
const NEAR: u32 = crate::collective::communicator::RANKS_MAX;
/// Ranks above which short parts of an all-to-all take Bruck.
const FEW: u32 = 4;
/// Bytes of a part up to which an all-to-all takes Bruck, which sends each part several times.
const SHORT: u64 = 256;
/// Bytes that pass a link in the latency of a message, as the algorithms of `tree` reckon. With sixteen times as many a
/// rank, the latency is a sixteenth of the time of a ring.
const LATENCY_BYTES: u64 = crate::collective::schedule::LATENCY_BYTES as u64;

/// Bytes up to which the eager exchange is fastest between so many ranks of a host. An eager message may hold more
/// where each rank would reduce all of it for more than two ranks: 16 KiB then.
fn message(collective: Collective, ranks: u32) -> u64 {
    let most = message_bytes_max(ranks) as u64;
    let reduces_all = matches!(collective, Collective::AllReduce | Collective::Reduce);
    if reduces_all && ranks > 2 { most.min(16 * 1024) } else { most }
}

pub(super) fn rows(spread: Spread) -> Arc<[Row]> {
    // Built once and shared, because each communicator and each digest asks for it.
    static ROWS: LazyLock<[Arc<[Row]>; Spread::ALL.len()]> = LazyLock::new(|| {
        Spread::ALL.map(|spread| {
            let mut table = Table(Vec::new(), spread);
            Collective::ALL.into_iter().for_each(|collective| table.add(collective));
            table.0.into()
        })
    });
    Arc::clone(&ROWS[spread as usize])
}

/// The rows, and the spread of the ranks that they are for.
struct Table(Vec<Row>, Spread);

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
            _ => {
                // The ring's latency grows with its ranks, and so do the bytes that take as long.
                let grows = self.in_rounds(collective, 1) < self.in_rounds(collective, ANY);
                let ends = (1..=ANY.ilog2()).map(|bits| 1 << bits).filter(|end| grows || *end == ANY);
                let mut first = 1;
                for end in ends {
                    let rows: [(u64, &[Algorithm]); 2] =
                        [(self.in_rounds(collective, end), &[Tree, Ring]), (u64::MAX, &[Ring, Tree])];
                    self.rows(collective, first..=end, Peers::Links, &rows);
                    first = end + 1;
                }
            }
        }
    }

    /// Bytes up to which a collective goes over links in rounds.
    ///
    /// A ring of ranks that stand in blocks on hosts sends each byte to another host once. In rounds a host sends some
    /// bytes several times, except in exchanges between partners where all blocks are powers of two.
    fn in_rounds(&self, collective: Collective, ranks: u32) -> u64 {
        use Collective::*;
        match (collective, self.1) {
            (AllGather | ReduceScatter, Spread::Hosts) => LATENCY_BYTES / 64,
            (_, Spread::Hosts) => LATENCY_BYTES / 4,
            (AllGather | ReduceScatter, _) | (Broadcast | Reduce, Spread::Blocks) => 4 * LATENCY_BYTES,
            _ => 16 * LATENCY_BYTES * u64::from(ranks),
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
