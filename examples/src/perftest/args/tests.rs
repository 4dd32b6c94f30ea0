//! Command lines as people type them, and the plans that follow.

use super::*;
use clap::CommandFactory;

fn plan<F: Flags>(line: &str) -> Plan {
    let words = std::iter::once(F::TEST.name()).chain(line.split_whitespace());
    F::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).plan()
}

fn refused<F: Flags>(line: &str) {
    let words = std::iter::once(F::TEST.name()).chain(line.split_whitespace());
    assert!(F::try_parse_from(words).is_err(), "{} {line}", F::TEST);
}

fn help<F: Flags + CommandFactory>() {
    F::command().debug_assert();
    assert_eq!(F::command().get_name(), F::TEST.name());
    insta::assert_snapshot!(F::TEST.name(), F::command().render_long_help());
}

#[test]
fn help_says_what_there_is() {
    help::<WriteBw>();
    help::<WriteLat>();
    help::<ReadBw>();
    help::<ReadLat>();
    help::<SendBw>();
    help::<SendLat>();
}

#[test]
fn the_defaults_are_perftests() {
    let write = Plan {
        test: Test::WriteBw,
        size: 65_536,
        all: false,
        iters: 5000,
        queue_pairs: 1,
        tx_depth: 128,
        cq_moderation: 1,
        inline_bytes: 0,
        inline_may_shrink: true,
        reads: None,
        rx_depth: 512,
    };
    assert_eq!(plan::<WriteBw>(""), write);
    assert_eq!(plan::<WriteBw>("-s 64").cq_moderation, 100);
    assert_eq!(plan::<ReadBw>(""), Plan { test: Test::ReadBw, iters: 1000, ..write });
    assert_eq!(plan::<SendBw>(""), Plan { test: Test::SendBw, iters: 1000, ..write });
    let send = plan::<SendLat>("");
    assert_eq!((send.size, send.iters, send.inline_bytes, send.rx_depth), (2, 1000, 236, 512));
    let latency = WriteLat::try_parse_from(["write_lat", "host"]).unwrap();
    assert_eq!((latency.common.port, latency.common.host.as_deref()), (18515, Some("host")));
    let latency = latency.plan();
    assert_eq!((latency.size, latency.iters, latency.inline_bytes, latency.tx_depth), (2, 1000, 220, 1));
}

#[test]
fn a_size_that_was_asked_for_stays_inline() {
    let asked = plan::<WriteLat>("-I 64");
    assert_eq!((asked.inline_bytes, asked.inline_may_shrink), (64, false));
}

#[test]
fn depth_and_moderation_are_bounded_by_the_run() {
    let short = plan::<WriteBw>("-s 64 -n 10");
    assert_eq!((short.tx_depth, short.cq_moderation), (10, 10));
    assert_eq!(plan::<WriteBw>("-s 64K -Q 100").cq_moderation, 100);
    assert_eq!(plan::<WriteBw>("-Q 1000 -t 64").cq_moderation, 64);
    assert_eq!(plan::<WriteBw>("-q 4 -n 10").messages(), 40);
    assert_eq!(plan::<SendBw>("-n 10").rx_depth, 10);
    assert_eq!(plan::<SendBw>("-r 3").rx_depth, 3);
}

#[test]
fn all_is_2_to_2_to_the_23() {
    let all = plan::<WriteBw>("-a");
    let sizes: Vec<u64> = all.sizes().collect();
    assert_eq!((sizes.len(), sizes[0], sizes[22]), (23, 2, 1 << 23));
    assert_eq!(all.cq_moderation, 100);
    assert_eq!(plan::<WriteBw>("-s 100").sizes().collect::<Vec<_>>(), [100]);
}

#[test]
fn what_perftest_refuses_is_refused() {
    for line in [
        "-n 4",
        "-m 1500",
        "-s 0",
        "-s 3G",
        "-Q 0",
        "-q 0",
        "-t 0",
        "-I 1025",
        "-a -s 8",
        "-p 65536",
        "-s 99999999999999999999G",
        "--overlay a.json",
    ] {
        refused::<WriteBw>(line);
    }
    refused::<WriteLat>("-q 2");
    for line in ["-o 0", "-o 256", "-I 8"] {
        refused::<ReadBw>(line);
        refused::<ReadLat>(line);
    }
    refused::<WriteBw>("-o 4");
    refused::<WriteBw>("-r 4");
    refused::<SendBw>("-r 0");
}

#[test]
fn runs_are_laid_over_one_by_one() {
    let line = ["write_bw", "--plot", "a.svg", "--overlay", "a.json", "--overlay", "b.json", "host"];
    let flags = WriteBw::try_parse_from(line).unwrap();
    assert_eq!((flags.common.files.overlay.len(), flags.common.host.as_deref()), (2, Some("host")));
}
