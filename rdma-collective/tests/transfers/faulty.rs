//! Pushes, pulls and streams of random blocks between ends that have trouble and give up: each ends in a verdict that
//! is true byte for byte, nothing lands afterwards, and what it left is moved then.
//!
//! `SOAK=full` runs ten times as many cases, `PROPTEST_CASES` as many as it says.

use crate::trouble::{Case, GiveUp, Got, Sent, Trouble, Way, cases, run};
use proptest::prelude::*;
use rdma_collective::kv::BlockVerdict;
use rdma_collective::kv::layout::Order;
use rdma_core::Wire;

/// Faults that a link survives, faults that it does not, and faults that a checksum finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Well,
    Badly,
    Corrupt,
}

fn config() -> ProptestConfig {
    let cases = if crate::common::is_soak() { 480 } else { 48 };
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { config } else { ProptestConfig { cases, ..config } }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_push_ends_in_a_verdict_that_is_true(case in cases(Way::Push)) {
        run(&case);
    }

    #[test]
    fn a_stream_ends_in_a_verdict_that_is_true(case in cases(Way::Stream)) {
        run(&case);
    }

    #[test]
    fn a_pull_ends_in_a_verdict_that_is_true(case in cases(Way::Pull)) {
        run(&case);
    }
}

/// All of a pool's blocks, small writes, and one trouble at decode: it strikes, and is what the verdict says.
#[test]
fn each_trouble_strikes_whichever_way_blocks_go() {
    let troubles = [
        (Trouble::Lossy, Ends::Well),
        (Trouble::Flap { nth: 20, ms: 8 }, Ends::Well),
        (Trouble::Flap { nth: 20, ms: 500 }, Ends::Badly),
        (Trouble::Kill { nth: 20 }, Ends::Badly),
        (Trouble::Corrupt { nth: 20 }, Ends::Corrupt),
    ];
    for way in [Way::Push, Way::Stream, Way::Pull] {
        for (trouble, ends) in troubles {
            let case = Case {
                way,
                wire: Wire::Local,
                order: Order::LayerPartBlock,
                pairs: (0..24).map(|block| (block, 23 - block)).collect(),
                write_bytes_max: 64,
                max_send_wr: 16,
                checksums: true,
                troubles: [vec![], vec![trouble]],
                give_up: GiveUp::Never,
                layer_ms: 1,
                seed: 7,
            };
            let outcome = run(&case);
            let counts = outcome.counts[1];
            let struck = match trouble {
                Trouble::Lossy => counts.delayed.min(counts.dropped).min(counts.reordered),
                Trouble::Flap { .. } => counts.flapped,
                Trouble::Kill { .. } => counts.killed,
                Trouble::Corrupt { .. } => counts.corrupted,
            };
            assert!(struck > 0, "{case:?}: {counts:?}");
            let corrupt = match (&outcome.sent, &outcome.got) {
                (Sent::Well(..), Got::Well(received)) => Some(received.verdicts.count(BlockVerdict::Corrupt)),
                // An end that has not found out when the other has ended for long is told to give up.
                (Sent::Badly(_) | Sent::GivenUp, Got::Badly(..)) | (Sent::Badly(_), Got::GivenUp(_)) => None,
                _ => panic!("{case:?}: {outcome:?}"),
            };
            let expected = match ends {
                Ends::Well => Some(0),
                Ends::Badly => None,
                Ends::Corrupt => Some(1),
            };
            assert_eq!(corrupt, expected, "{case:?}: {outcome:?}");
        }
    }
}
