//! Tests of the tuning table: the built-in choices, and files that are good, damaged or of another version.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::collective::communicator::Algorithms;
use crate::collective::communicator::Spread;

/// The choice that `docs/defaults.md` argues: the first algorithm that can be taken, and the next one for borrowed
/// memory.
fn argued(
    collective: Collective,
    (ranks, peers): (u32, Peers),
    bytes: u64,
) -> (Algorithm, Option<Algorithm>) {
    use Algorithm::*;
    use Collective::*;
    let message = match collective {
        _ if ranks > 4 => 8 * 1024,
        AllReduce | Reduce if ranks > 2 => 16 * 1024,
        _ => 32 * 1024,
    };
    let is_long = match collective {
        AllGather | ReduceScatter => bytes > 256 << 10,
        _ => bytes > u64::from(ranks.next_power_of_two().max(2)) << 20,
    };
    match (collective, peers) {
        (_, Peers::Mapped) if bytes <= message => (Flat, None),
        (Gather | Scatter, _) => (Tree, None),
        (Barrier, Peers::Mapped) => (Flat, None),
        (_, Peers::Mapped) => (Direct, Some(Pieces)),
        (AllToAll, _) if ranks >= 5 && bytes <= 256 => (Bruck, None),
        (AllToAll, _) => (Pairs, None),
        (Barrier, _) => (Tree, None),
        _ => (if is_long { Ring } else { Tree }, None),
    }
}

fn at(orders: &Orders, collective: Collective, bytes: u64) -> (Algorithm, Option<Algorithm>) {
    let ways: Vec<Algorithm> = orders.find(collective, bytes).ways().collect();
    let slices = || ways.iter().skip(1).find(|way| matches!(way, Algorithm::Ring | Algorithm::Pieces));
    let first = ways[0];
    (first, slices().copied().filter(|_| first == Algorithm::Direct))
}

#[test]
fn the_built_in_table_is_what_is_argued() {
    for (ranks, peers) in
        (1..40).map(|ranks| (ranks, Peers::Links)).chain((2..=16).map(|ranks| (ranks, Peers::Mapped)))
    {
        let orders =
            Orders::new(&Tuning::default(), Algorithms::default(), (ranks, peers, Spread::OneLevel), false);
        let short = [0, 256, 8 * 1024, 16 * 1024, 32 * 1024, 128 * 1024, 256 * 1024];
        let edges = short.into_iter().chain((20..=27).map(|bits| 1 << bits)).chain([1 << 50]);
        for bytes in edges.flat_map(|edge: u64| [edge.saturating_sub(1), edge, edge + 1]) {
            for collective in Collective::ALL {
                let expected = argued(collective, (ranks, peers), bytes);
                assert_eq!(at(&orders, collective, bytes), expected, "{collective} {ranks} {peers} {bytes}");
            }
        }
    }
}

#[test]
fn whatever_may_be_taken_there_is_a_way_by_links() {
    for bits in 0..1 << Algorithm::ALL.len() {
        let algorithms: Algorithms = Algorithm::ALL
            .iter()
            .copied()
            .enumerate()
            .filter(|(at, _)| bits & (1 << at) != 0)
            .map(|(_, of)| of)
            .collect();
        for (peers, reproducible) in [(Peers::Mapped, false), (Peers::Mapped, true), (Peers::Links, false)] {
            let orders =
                Orders::new(&Tuning::default(), algorithms, (7, peers, Spread::OneLevel), reproducible);
            for collective in Collective::ALL {
                for bytes in [0, 9000, 1 << 40] {
                    let ways: Vec<Algorithm> = orders.find(collective, bytes).ways().collect();
                    let by_links = ways.iter().position(|way| !way.needs_mapped()).unwrap();
                    let tree = collective.properties().reduces && ways.contains(&Algorithm::Tree);
                    assert!(!(reproducible && tree), "{collective}: {ways:?}");
                    assert!(ways.iter().all(|way| collective.has(*way) && peers.have(*way)), "{ways:?}");
                    // Algorithms that were not allowed come behind all allowed ones.
                    assert!(
                        ways[..by_links].iter().all(|way| algorithms.allow(collective, *way)),
                        "{ways:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_tree_is_taken_where_no_ring_may_be_and_what_is_asked_for_where_it_can() {
    let taken = |algorithms: &str, collective, bytes| {
        let algorithms = algorithms.parse().unwrap();
        let orders = Orders::new(&Tuning::default(), algorithms, (4, Peers::Mapped, Spread::OneLevel), false);
        orders.find(collective, bytes).ways().next().unwrap()
    };
    assert_eq!(taken("tree", Collective::AllReduce, 1 << 20), Algorithm::Tree);
    assert_eq!(taken("tree,ring", Collective::AllReduce, 1 << 20), Algorithm::Ring);
    assert_eq!(taken("tree,ring", Collective::AllToAll, 1 << 20), Algorithm::Pairs);
    assert_eq!(taken("^direct", Collective::AllToAll, 1 << 20), Algorithm::Pieces);
    assert_eq!(taken("pieces", Collective::AllReduce, 1 << 30), Algorithm::Pieces);
    assert_eq!(taken("^direct", Collective::AllReduce, 1 << 18), Algorithm::Pieces);
    assert_eq!(taken("^direct", Collective::AllReduce, 1 << 30), Algorithm::Pieces);
    assert_eq!(taken("bruck", Collective::AllToAll, 1 << 30), Algorithm::Bruck);
    assert_eq!(taken("ring", Collective::Gather, 1), Algorithm::Tree);
    assert_eq!(taken("ring;broadcast:tree", Collective::Broadcast, 1), Algorithm::Tree);
    assert_eq!(taken("ring;broadcast:tree", Collective::Reduce, 1), Algorithm::Ring);
}

#[test]
fn an_all_reduce_goes_inside_hosts_first_where_it_is_asked_for_and_there_are_several() {
    let first = |tuning: &Tuning, (ranks, spread), bytes| {
        let orders = Orders::new(tuning, Algorithms::default(), (ranks, Peers::Links, spread), false);
        orders.find(Collective::AllReduce, bytes).ways().next()
    };
    assert_eq!(first(&Tuning::default(), (64, Spread::Hosts), 1), Some(Algorithm::Tree));
    let table = "rdma-collective tuning 1\nall-reduce 2- links any hierarchical,ring\nend\n".parse().unwrap();
    assert_eq!(first(&table, (3, Spread::Hosts), 1 << 30), Some(Algorithm::Hierarchical));
    assert_eq!(first(&table, (3, Spread::OneLevel), 1 << 30), Some(Algorithm::Ring));
}

#[test]
fn between_hosts_their_hierarchy_is_taken_where_neither_ring_nor_tree_may_be_and_a_ring_where_nothing_may() {
    let orders = |algorithms: &str, spread, reproducible| {
        let of = (4, Peers::Links, spread);
        Orders::new(&Tuning::default(), algorithms.parse().unwrap(), of, reproducible)
    };
    for (algorithms, spread, reproducible, expected) in [
        ("^ring,tree", Spread::Hosts, false, Algorithm::Hierarchical),
        ("^ring,tree", Spread::Hosts, true, Algorithm::Ring),
        ("^ring,tree", Spread::OneLevel, false, Algorithm::Tree),
        ("^ring,tree,hierarchical", Spread::Blocks, false, Algorithm::Tree),
        ("^ring,tree,hierarchical", Spread::Hosts, false, Algorithm::Ring),
        ("^tree", Spread::Hosts, false, Algorithm::Ring),
    ] {
        let orders = orders(algorithms, spread, reproducible);
        let taken = orders.find(Collective::AllReduce, 1 << 20).ways().next();
        assert_eq!(taken, Some(expected), "{algorithms}, {spread:?}, {reproducible}");
    }
    for (spread, reproducible, hierarchical) in
        [(Spread::Hosts, false, true), (Spread::Hosts, true, false), (Spread::OneLevel, false, false)]
    {
        // Broadcasts may take a tree whatever the order of sums, and an algorithm that is not allowed is still
        // possible.
        let orders = orders("ring", spread, reproducible);
        let have = [Algorithm::Hierarchical, Algorithm::Tree, Algorithm::Flat].map(|way| orders.have(way));
        assert_eq!(have, [hierarchical, true, false], "{spread:?}, {reproducible}");
    }
}

#[test]
fn rows_of_a_file_come_before_the_built_in_ones_and_only_where_they_are_of() {
    let text = "rdma-collective tuning 1\n\
        # measured on a Monday\n\
        \n\
        all-reduce 2-4 mapped 1K pieces # as here\n\
        all-reduce 2-4 mapped 64K ring,tree\n\
        all-reduce 5- links any tree\n\
        end\n# and no more\n";
    let tuning: Tuning = text.parse().unwrap();
    let taken = |ranks, peers, bytes| {
        let orders = Orders::new(&tuning, Algorithms::default(), (ranks, peers, Spread::OneLevel), false);
        let class = orders.find(Collective::AllReduce, bytes);
        let taken = class.ways().next().unwrap();
        (taken, orders.said(class, taken))
    };
    let given = "(given by the program)".to_owned();
    assert_eq!(taken(2, Peers::Mapped, 1024), (Algorithm::Pieces, given.clone()));
    assert_eq!(taken(4, Peers::Mapped, 1025), (Algorithm::Ring, given.clone()));
    assert_eq!(taken(4, Peers::Mapped, 65 * 1024), (Algorithm::Direct, "(built in)".to_owned()));
    assert_eq!(taken(5, Peers::Mapped, 1024).0, Algorithm::Flat);
    assert_eq!(taken(2, Peers::Links, 1024).0, Algorithm::Tree);
    assert_eq!(taken(900, Peers::Links, 1 << 40), (Algorithm::Tree, given));
    let orders = Orders::new(&tuning, "tree".parse().unwrap(), (2, Peers::Mapped, Spread::OneLevel), false);
    let class = orders.find(Collective::AllReduce, 1);
    assert_eq!(orders.said(class, Algorithm::Tree), "in place of pieces (given by the program)");
}

#[test]
fn tables_differ_by_their_digests_and_not_by_their_names() {
    let text = Tuning::default().to_string();
    let same: Tuning = text.parse().unwrap();
    assert_eq!(same.digest(), Tuning::default().digest());
    assert_ne!(same.source(), Tuning::default().source());
    let other: Tuning = text.replacen("16K", "15K", 1).parse().unwrap();
    assert_ne!(other.digest(), same.digest());
}

fn error(text: &[u8]) -> String {
    parse::file(text, "a.tune").unwrap_err().to_string()
}

#[test]
fn a_tuning_file_that_is_damaged_or_of_another_version_is_an_error() {
    let good = Tuning::default().to_string();
    let head = "rdma-collective tuning 1\n";
    let row = "all-reduce 2 mapped 8K flat\n";
    let of = |rows: &str| error(format!("{head}{rows}end\n").as_bytes());
    assert!(
        error(b"rdma-collective tuning 2\nend\n").contains("of version 2, and this release reads version 1")
    );
    for text in [
        "",
        "\n# no line\n",
        "end\n",
        "rdma-collective\nend\n",
        "{\"tuning\": 1}",
        "\u{feff}rdma-collective tuning 1\n",
    ] {
        assert!(error(text.as_bytes()).contains("begins with \"rdma-collective tuning 1\""), "{text:?}");
    }
    for (rows, expected) in [
        ("all-reduce 2 mapped 8K\n", "line 2: 4 words"),
        ("all-reduce 2 mapped 8K flat ring\n", "line 2: 6 words"),
        ("\nallreduce 2 mapped 8K flat\n", "line 3: \"allreduce\" is no collective; there are all-reduce,"),
        ("all-reduce x mapped 8K flat\n", "\"x\" are no ranks"),
        ("all-reduce 0 mapped 8K flat\n", "0-0 are no ranks"),
        ("all-reduce 4-2 mapped 8K flat\n", "4-2 are no ranks"),
        ("all-reduce 2-65537 mapped 8K flat\n", "no ranks"),
        ("all-reduce 2-+4 mapped 8K flat\n", "no ranks"),
        ("all-reduce 2 near 8K flat\n", "\"near\" is no kind of peers; there are mapped, links"),
        ("all-reduce 2 mapped 8k flat\n", "\"8k\" are no bytes"),
        ("all-reduce 2 mapped -8 flat\n", "\"-8\" are no bytes"),
        ("all-reduce 2 mapped 99999999999999999G flat\n", "are no bytes"),
        ("all-reduce 2 mapped 8K flt\n", "\"flt\" is no algorithm; there are ring,"),
        ("all-reduce 2 mapped 8K flat,\n", "\"\" is no algorithm"),
        ("all-reduce 2 mapped 8K flat,flat\n", "flat stands there twice"),
        (
            "all-to-all 2 mapped 8K tree\n",
            "all-to-all has no tree; it has flat, pieces, direct, pairs, bruck",
        ),
        ("all-reduce 2 links 8K direct\n", "direct needs peers that are mapped"),
        (&format!("{row}{row}"), "line 3: 8K bytes stand behind 8K"),
        (&format!("{row}all-reduce 2 mapped 4K ring\n"), "4K bytes stand behind 8K; put the rows in order"),
        (&format!("{row}all-reduce 2- mapped 9K ring\n"), "ranks 2- have some in common with 2"),
        (&format!("{head}{row}"), "line 2: 3 words"),
        ("end\n", "line 3: nothing stands behind `end`"),
    ] {
        let told = of(rows);
        assert!(told.contains(expected) && told.starts_with("a.tune"), "{rows:?}: {told}");
        assert!(told.contains("`tune`"), "no mend in {told}");
    }
    assert!(error(format!("{head}{row}\0\n").as_bytes()).contains("line 3"));
    assert!(error(&[head.as_bytes(), b"all-reduce \xff"].concat()).contains("line 2: it is no text"));
    assert!(error(&vec![b'#'; FILE_BYTES_MAX + 1]).contains("more than 262144 bytes"));
    // A file that is cut off anywhere is refused.
    let end = good.find("\nend").unwrap();
    // A sample of all lengths, and every length near the end, where a cut is hardest to see.
    for len in (0..end + 4).filter(|len| len % 7 == 0 || *len > end - 20) {
        assert!(good[..len].parse::<Tuning>().is_err(), "{len} bytes of {}", good.len());
    }
    assert!(error(format!("{head}{row}").as_bytes()).contains("no `end` behind its 2 lines"));
    assert_eq!(good.parse::<Tuning>().unwrap().rows(), Tuning::default().rows());
}

#[test]
fn a_tuning_file_that_cannot_be_read_is_an_error() {
    for path in ["/nonexistent/a.tune", "/dev/zero", "/"] {
        let told = Tuning::read(&PathBuf::from(path)).unwrap_err().to_string();
        assert!(told.contains(path) && told.contains("RDMA_TUNING_FILE"), "{told}");
    }
}

#[test]
fn rows_of_a_program_are_held_to_the_same() {
    let row = Row {
        collective: Collective::Gather,
        ranks: 2..=4,
        peers: Peers::Links,
        bytes_max: 7,
        ways: vec![Algorithm::Tree],
    };
    assert_eq!(Tuning::new(vec![row.clone()]).unwrap().rows(), std::slice::from_ref(&row));
    let none = Row { ways: Vec::new(), bytes_max: 8, ..row.clone() };
    let told = Tuning::new(vec![row, none]).unwrap_err().to_string();
    assert!(told.starts_with("the table, line 2: there is no way"), "{told}");
}

fn any_row() -> impl Strategy<Value = Row> {
    let collective = prop::sample::select(Collective::ALL.to_vec());
    let peers = prop::sample::select(Peers::ALL.to_vec());
    (collective, peers, 1_u32..70, 0_u32..40, any::<u64>(), 0_u32..64, any::<prop::sample::Index>()).prop_map(
        |(collective, peers, first, more, bytes, shift, one)| {
            let ways: Vec<Algorithm> = collective.ways().filter(|way| peers.have(*way)).collect();
            let ways = ways[one.index(ways.len())..].to_vec();
            let last = if more == 39 { row::RANKS_MAX } else { first + more };
            Row { collective, ranks: first..=last, peers, bytes_max: bytes >> shift << (shift / 2), ways }
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(rows in prop::collection::vec(any_row(), 0..12)) {
        let mut good: Vec<Row> = Vec::new();
        for row in rows {
            if row::check(&row, &good).is_ok() {
                good.push(row);
            }
        }
        let tuning = Tuning::new(good).unwrap();
        let read: Tuning = tuning.to_string().parse().unwrap();
        prop_assert_eq!(read.rows(), tuning.rows());
        prop_assert_eq!(read.digest(), tuning.digest());
    }
}
