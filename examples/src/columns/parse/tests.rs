//! Tables that follow are accepted for any numbers; one digit changed by more than rounding is not.

use super::*;
use crate::columns::{Closing, Measured, Row, print};
use proptest::prelude::*;

const ALL_REDUCE: Collective = Collective::AllReduce;

/// Returns a table of so many bytes at most, in whole elements for each rank.
fn table(collective: Collective, ranks: usize, measured: &[(u64, f64, u64)]) -> String {
    let (factor, parts) =
        (collective.bus_factor(ranks), if collective.has_parts() { ranks as u64 } else { 1 });
    let sizes = |&(bytes, seconds, wrong): &(u64, f64, u64)| (bytes / 4 / parts, seconds, wrong);
    let row = |(count, seconds, wrong)| Row {
        bytes: count * parts * 4,
        count,
        dtype: "float".into(),
        redop: "sum".into(),
        root: -1,
        out_of_place: Measured::new(count * parts * 4, factor, seconds, Some(0)),
        in_place: Measured::new(count * parts * 4, factor, seconds * 0.9, Some(wrong)),
    };
    let rows: Vec<Row> = measured.iter().map(sizes).map(row).collect();
    let mut text = print::column_titles();
    text.extend(rows.iter().map(print::row));
    text + &print::closing(&Closing::of(&rows), collective.name())
}

#[test]
fn reads_a_table_of_nccl_tests() {
    // Rows as all_reduce_perf prints them; the first has no trailing space, the second has.
    let text = "# nThread 1 nGpus 2 minBytes 8 maxBytes 16\n\
        #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
        \x20          8             2     float     sum      -1    10.64    0.00    0.00      0    10.53    0.00    0.00      0\n\
        \x20  134217728      33554432     float     sum      -1    785.1  170.96  170.96      0    784.9  171.00  171.00    N/A \n\
        # Out of bounds values : 0 OK\n\
        # Avg bus bandwidth    : 85.49\n#\n";
    let table = ParsedTable::parse(text).unwrap();
    assert_eq!(table.rows.len(), 2);
    assert_eq!(table.rows[1].count, 33_554_432);
    assert_eq!(table.rows[1].in_place.wrong, None);
    assert_eq!(table.rows[1].out_of_place.time_us, Printed { value: 785.1, half_unit: 0.05 });
    assert!(table.ok);
    table.verify(ALL_REDUCE, 2).unwrap();
}

#[test]
fn reads_a_table_of_alltoall_whose_in_place_elements_nccl_tests_does_not_check() {
    let text = "\
        \x20    1048576         65536     float    none      -1   100.00   10.49    7.86      0    95.00   11.04    8.28    N/A\n\
        # Out of bounds values : 0 OK\n# Avg bus bandwidth    : 8.07\n#\n";
    let table = ParsedTable::parse(text).unwrap();
    assert_eq!((table.rows[0].out_of_place.wrong, table.rows[0].in_place.wrong), (Some(0.0), None));
    table.verify(Collective::AllToAll, 4).unwrap();
    let of_others = table.verify(Collective::AllToAll, 2);
    assert!(matches!(of_others, Err(TableError::Disagrees { what: "size", .. })), "{of_others:?}");
    let of_one_buffer = table.verify(Collective::Broadcast, 4);
    assert!(matches!(of_one_buffer, Err(TableError::Disagrees { what: "size", .. })), "{of_one_buffer:?}");
}

#[test]
fn the_bus_bandwidth_of_other_ranks_is_refused() {
    for ranks in 1..=8 {
        let text = table(ALL_REDUCE, ranks, &[(1 << 20, 1e-3, 0), (1 << 24, 12e-3, 0)]);
        let parsed = ParsedTable::parse(&text).unwrap();
        parsed.verify(ALL_REDUCE, ranks).unwrap();
        for other in (1..=8).filter(|&other| other != ranks) {
            assert!(
                matches!(parsed.verify(ALL_REDUCE, other), Err(TableError::Disagrees { what: "busbw", .. })),
                "{ranks} {other}"
            );
        }
    }
}

#[test]
fn the_figures_of_another_collective_are_refused() {
    for &collective in Collective::ALL {
        let parsed =
            ParsedTable::parse(&table(collective, 4, &[(1 << 20, 1e-3, 0), (1 << 24, 12e-3, 0)])).unwrap();
        parsed.verify(collective, 4).unwrap();
        for &other in Collective::ALL {
            let alike = (other.bus_factor(4), other.has_parts())
                == (collective.bus_factor(4), collective.has_parts());
            assert_eq!(parsed.verify(other, 4).is_ok(), alike, "{collective:?} as {other:?}");
        }
    }
}

#[test]
fn a_single_rank_has_no_bus_bandwidth() {
    let parsed = ParsedTable::parse(&table(ALL_REDUCE, 1, &[(1 << 30, 0.5, 0)])).unwrap();
    assert_eq!(parsed.rows[0].in_place.busbw.value, 0.0);
    assert!(parsed.rows[0].in_place.algbw.value > 2.0);
    parsed.verify(ALL_REDUCE, 1).unwrap();
}

#[test]
fn each_number_is_held_against_the_others() {
    let parsed = ParsedTable::parse(&table(ALL_REDUCE, 4, &[(1 << 20, 1e-3, 0)])).unwrap();
    let broken = |change: fn(&mut ParsedTable)| {
        let mut table = parsed.clone();
        change(&mut table);
        table.verify(ALL_REDUCE, 4).unwrap_err()
    };
    assert!(matches!(broken(|t| t.rows[0].bytes *= 2), TableError::Disagrees { what: "size", .. }));
    assert!(matches!(broken(|t| t.rows[0].count -= 1), TableError::Disagrees { what: "size", .. }));
    assert!(matches!(
        broken(|t| t.rows[0].out_of_place.time_us.value *= 1.02),
        TableError::Disagrees { what: "algbw", .. }
    ));
    assert!(matches!(
        broken(|t| t.rows[0].in_place.busbw.value += 0.02),
        TableError::Disagrees { what: "busbw", bytes: 1_048_576, .. }
    ));
    assert!(matches!(broken(|t| t.average_busbw.value += 0.02), TableError::Disagrees { bytes: 0, .. }));
    assert!(matches!(
        broken(|t| t.rows[0].in_place.wrong = Some(1.0)),
        TableError::Verdict { counted: 1, .. }
    ));
    assert!(matches!(broken(|t| t.ok = false), TableError::Verdict { counted: 0, .. }));
}

#[test]
fn wrong_elements_are_counted() {
    let parsed =
        ParsedTable::parse(&table(ALL_REDUCE, 2, &[(64, 1e-5, 0), (1 << 23, 1e-2, 1_048_577)])).unwrap();
    assert_eq!((parsed.out_of_bounds, parsed.ok), (1, false));
    assert_eq!(parsed.rows[1].in_place.wrong, Some(1_048_580.0)); // six digits, as nccl-tests prints it
    parsed.verify(ALL_REDUCE, 2).unwrap();
}

#[test]
fn what_is_not_a_table_is_refused() {
    assert_eq!(ParsedTable::parse(""), Err(TableError::Missing("Out of bounds values")));
    assert_eq!(
        ParsedTable::parse("# Out of bounds values : 0 OK\n"),
        Err(TableError::Missing("Avg bus bandwidth"))
    );
    assert_eq!(
        ParsedTable::parse("#\n1 2 float sum -1 3 4 5 0\n"),
        Err(TableError::Row { line: 2, text: "1 2 float sum -1 3 4 5 0".into() })
    );
    let negative = table(ALL_REDUCE, 2, &[(64, 1e-5, 0)]).replace("10.00", "-10.0");
    assert!(matches!(ParsedTable::parse(&negative), Err(TableError::Row { .. })));
}

proptest! {
    #[test]
    fn whatever_was_measured_the_printed_table_follows(
        collective in prop::sample::select(Collective::ALL),
        ranks in 1usize..=8,
        measured in prop::collection::vec((0u64..1 << 40, 1e-7f64..1e3, 0u64..3), 1..8),
    ) {
        let text = table(collective, ranks, &measured);
        let parsed = ParsedTable::parse(&text).unwrap();
        prop_assert_eq!(parsed.rows.len(), measured.len());
        let verified = parsed.verify(collective, ranks);
        prop_assert!(verified.is_ok(), "{:?}\n{}", verified, text);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[#0-9a-zA-Z:. \n-]{0,200}") {
        let _ = ParsedTable::parse(&text);
    }
}
