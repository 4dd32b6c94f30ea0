//! The log of the programs under `NCCL_DEBUG`: each line in NCCL's shape, the lines of a whole run, and those of a
//! loss.

mod common;

use common::{Ended, LONG, free_port, start_with};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::time::Instant;

const ALLREDUCE: &str = env!("CARGO_BIN_EXE_allreduce");
const KVCACHE: &str = env!("CARGO_BIN_EXE_kvcache_transfer");

/// The whole log of a rank of two, in this order, however many operations there are; `*` is anything.
const WHOLE: [&str; 16] = [
    "INFO LocalRanks: rank {own} of 2 by RANK={own} and WORLD_SIZE=2",
    "INFO ranks meet at 127.0.0.1:*, where their launcher serves",
    "INFO RDMA_JOB_TOKEN set by environment",
    "INFO NCCL_DEBUG set by environment to INFO",
    "INFO NET/Soft : Using [0]soft0:1/RoCE, MTU *",
    "INFO NET/Soft : GID * (RoCE v2) is used: *",
    "INFO NET/Soft : GID * (RoCE v2) is not: *",
    "INFO Bootstrap : Using 127.0.0.1:*",
    "INFO comm world rank {own} nranks 2 dev soft0 job ???????? epoch 0 - Init START",
    "INFO Channel 00/0 : {own}[0] -> {other}[0] [send] via NET/Soft/0/*, lane 0x?????? of epoch 0",
    "INFO Channel 00/0 : {other}[0] -> {own}[0] [receive] via NET/Soft/0/*, lane 0x?????? of epoch 0",
    "INFO Connected all rings",
    "INFO Mailboxes between all 2 ranks, which are on one host",
    "INFO Init timings: rank {own} total *.???",
    "INFO comm world rank {own} nranks 2 dev soft0 job ???????? epoch 0 - Init COMPLETE",
    "INFO comm world rank {own} nranks 2 dev soft0 job ???????? epoch 0 - Destroy COMPLETE",
];

/// Said of each power of two of bytes, from 8 to 64 KiB.
const WAY: &str =
    "INFO comm world rank {own} nranks 2 dev soft0 job ???????? epoch 0 - all-reduce of up to * bytes: *";

/// Whether `text` is `pattern`, in which `*` is something and `?` one character.
fn is(text: &str, pattern: &str) -> bool {
    match (pattern.chars().next(), text.chars().next()) {
        (None, None) => true,
        (Some('*'), Some(next)) => {
            let (rest, text) = (&pattern[1..], &text[next.len_utf8()..]);
            is(text, rest) || is(text, pattern)
        }
        (Some(expected), Some(next)) if expected == '?' || expected == next => {
            is(&text[next.len_utf8()..], &pattern[expected.len_utf8()..])
        }
        _ => false,
    }
}

/// Splits a line into the process, its rank or `-`, and the level with the text.
fn read(line: &str) -> Option<(u32, &str, &str)> {
    let (place, rest) = line.split_once(" [")?;
    let (rank, said) = rest.split_once("] NCCL ")?;
    let mut place = place.splitn(3, ':');
    let (host, pid, tid) = (place.next()?, place.next()?.parse().ok()?, place.next()?.parse::<u32>().ok()?);
    let shaped = !host.is_empty()
        && !host.contains([' ', '.'])
        && tid > 0
        && (rank == "-" || rank.parse::<u32>().is_ok())
        && ["INFO ", "WARN "].iter().any(|level| said.starts_with(level));
    shaped.then_some((pid, rank, said))
}

/// The lines of each process, with its rank; any line but `others` fails the test when it has another shape.
fn by_process<'a>(stderr: &'a str, others: &[&str]) -> BTreeMap<(u32, &'a str), Vec<&'a str>> {
    let mut told: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for line in stderr.lines() {
        match read(line) {
            Some((pid, rank, said)) => told.entry((pid, rank)).or_default().push(said),
            None => assert!(others.iter().any(|other| is(line, other)), "{line}\nin:\n{stderr}"),
        }
    }
    told
}

const VERSION: &str = "rdma-collective version *.*.*";

fn info(program: &str, line: &str) -> Ended {
    start_with(program, line, &[("NCCL_DEBUG", "INFO")]).finish().expect(0)
}

#[test]
fn both_ranks_tell_device_links_beginning_and_end_and_the_way_of_each_size_once() {
    let ended = info(ALLREDUCE, "--device soft --ranks 2 -b 8 -e 64K -f 2 -n 20");
    let mut told = by_process(&ended.stderr, &[VERSION]);
    assert_eq!(ended.stderr.lines().filter(|line| is(line, VERSION)).count(), 3, "{}", ended.stderr);
    told.retain(|(_, rank), _| *rank != "-"); // `-` is the process that starts the ranks
    assert_eq!(told.len(), 2, "{}", ended.stderr);
    for ((_, own), mut said) in told {
        // The further lines depend on the host.
        let all = said.len();
        said.retain(|said| !is(said, "INFO NET/Soft : Not used: *: *"));
        assert!(said.len() < all, "{}", ended.stderr);
        let other = if own == "0" { "1" } else { "0" };
        let whole = WHOLE.map(|line| line.replace("{own}", own).replace("{other}", other));
        let way = WAY.replace("{own}", own);
        let mut ways: Vec<_> = said.extract_if(.., |said| is(said, &way)).collect();
        // Each of these sizes has many operations.
        assert_eq!(ways.len(), 14, "{ways:#?}");
        ways.dedup();
        assert_eq!(ways.len(), 14, "{ways:#?}");
        assert_eq!(said.len(), whole.len(), "{said:#?}");
        for (said, expected) in said.into_iter().zip(&whole) {
            assert!(is(said, expected), "not `{expected}`: {said}\nin:\n{}", ended.stderr);
        }
    }
}

#[test]
fn a_lost_rank_is_a_warning_of_each_lane_and_one_of_the_communicator() {
    let port = free_port().to_string();
    let rank = |rank| {
        let place =
            [("RANK", rank), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port)];
        let debug = [("NCCL_DEBUG", "INFO")];
        start_with(
            ALLREDUCE,
            "--device soft -b 64K -e 4M -i 4 -n 3 -w 0 -T 60",
            &[&place[..], &debug].concat(),
        )
    };
    let (survivor, victim) = (rank("0"), rank("1"));
    let rows = Instant::now() + LONG;
    while !survivor.stdout().lines().any(|line| line.trim_start().starts_with("65536 ")) {
        assert!(Instant::now() < rows, "no row: {}", survivor.stderr());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    victim.signal(Signal::KILL);
    let stderr = survivor.finish().expect(1).stderr;
    let told = by_process(&stderr, &[VERSION, "allreduce: rank 0: *is lost *"]);
    let said: Vec<_> = told.into_values().flatten().collect();
    let count = |pattern: &str| said.iter().filter(|said| is(said, pattern)).count();
    let lanes = count("WARN lane 0x?????? of epoch 0 has failed: *");
    assert!((1..=2).contains(&lanes), "{stderr}");
    assert_eq!(count("WARN comm world rank 0 nranks 2 * has failed: rank 1 is lost *"), 1, "{stderr}");
    assert_eq!(count("WARN *"), lanes + 1, "{stderr}");
    assert!(is(said[said.len() - 1], "INFO comm world rank 0 * - Abort COMPLETE"), "{stderr}");
}

#[test]
fn nccl_debug_says_what_happens_on_both_sides() {
    let ended = info(KVCACHE, "--device soft --prompt 64");
    let told = by_process(&ended.stderr, &[VERSION]);
    let sides: Vec<_> =
        told.into_values().filter(|said| said.iter().any(|said| is(said, "INFO NET/*"))).collect();
    assert_eq!(sides.len(), 2, "{}", ended.stderr);
    for expected in [
        "INFO NET/Soft : Using [0]soft0:1/RoCE, MTU *",
        "INFO NET/Soft : GID * is used: *",
        "INFO a KV link is up peer=* lane=lane 0x?????? of epoch * pool=* access=*",
        "INFO a KV link is down peer=* cause=*",
    ] {
        for said in &sides {
            assert_eq!(
                said.iter().filter(|said| is(said, expected)).count(),
                1,
                "`{expected}`: {}",
                ended.stderr
            );
        }
    }
    for pool in ["Source", "Destination"] {
        assert_eq!(ended.stderr.matches(&format!("pool={pool}")).count(), 1, "{}", ended.stderr);
    }
    assert!(!ended.stderr.contains("WARN"), "{}", ended.stderr);
    assert!(!ended.stderr.contains('\u{1b}'), "colours are for terminals: {}", ended.stderr);
    let quiet = start_with(KVCACHE, "--device soft --prompt 64", &[]).finish().expect(0);
    assert_eq!(quiet.stderr, "");
}

#[test]
fn patterns_and_lines_are_told_from_others() {
    assert!(is("lane 0x12 of", "lane 0x?? of") && is("a b c", "a*c") && is("abc", "abc"));
    assert!(!is("lane 0x1 of", "lane 0x?? of") && !is("ac", "a*c") && !is("abcd", "abc") && !is("ab", "abc"));
    assert_eq!(read("node-1:12:13 [0] NCCL INFO x"), Some((12, "0", "INFO x")));
    assert_eq!(read("node-1:12:13 [-] NCCL WARN x"), Some((12, "-", "WARN x")));
    for other in
        ["x", "h:12 [0] NCCL INFO x", "h:a:13 [0] NCCL INFO x", "h:1:2 [r] NCCL INFO x", "h:1:2 [0] INFO x"]
    {
        assert_eq!(read(other), None, "{other}");
    }
    assert_eq!(read("h:1:2 [0] NCCL TRACE x"), None);
}
