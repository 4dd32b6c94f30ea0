//! `allreduce` and the other collectives' programs as people run them: processes on this host, on the software device.

#[path = "../common/mod.rs"]
mod common;
mod lanes;
mod tuning;

use common::{free_port, program, run, start_with};
use examples::collectives::Collective;
use examples::columns::parse::{ParsedMeasured, ParsedTable};

const ALLREDUCE: &str = program(Collective::AllReduce);

/// Runs it to the status `code` and reads its table.
fn table_of(collective: Collective, line: &str, ranks: usize, code: i32) -> (ParsedTable, String) {
    let ended = run(program(collective), &format!("--device soft --ranks {ranks} {line}")).expect(code);
    let table = ParsedTable::parse(&ended.stdout).unwrap_or_else(|error| panic!("{error}\n{}", ended.stdout));
    table.verify(collective, ranks).unwrap_or_else(|error| panic!("{error}\n{}", ended.stdout));
    (table, ended.stdout)
}

fn table(line: &str, ranks: usize, code: i32) -> (ParsedTable, String) {
    table_of(Collective::AllReduce, line, ranks, code)
}

/// Both halves of every row.
fn measured(table: &ParsedTable) -> impl Iterator<Item = ParsedMeasured> {
    table.rows.iter().flat_map(|row| [row.out_of_place, row.in_place])
}

fn assert_follows_for_1_to_8_ranks(collective: Collective) {
    let root = if collective.is_rooted() { 0 } else { -1 };
    let redop = if collective.reduces() { "sum" } else { "none" };
    for ranks in 1..=8 {
        let (table, text) = table_of(collective, "-b 8 -e 64K -f 8 -n 2 -w 1", ranks, 0);
        let parts = if collective.has_parts() { ranks as u64 } else { 1 };
        let whole = [8, 64, 512, 4096, 32_768].map(|bytes| bytes / 4 / parts * parts * 4);
        let sizes: Vec<u64> = table.rows.iter().map(|row| row.bytes).collect();
        assert_eq!(sizes, whole, "{text}");
        assert!(table.rows.iter().all(|row| row.root == root && row.redop == redop), "{text}");
        assert!(table.ok);
        assert!(measured(&table).all(|measured| measured.wrong == Some(0.0)), "{text}");
        assert_eq!(text.matches("[soft0]").count(), ranks, "{text}");
        assert!(text.contains(&format!("# Collective test starting: {}\n", collective.name())), "{text}");
    }
}

#[test]
fn the_printed_table_follows_for_1_to_8_ranks() {
    assert_follows_for_1_to_8_ranks(Collective::AllReduce);
}

#[test]
fn the_table_of_allgather_follows_for_1_to_8_ranks() {
    assert_follows_for_1_to_8_ranks(Collective::AllGather);
}

#[test]
fn the_table_of_reducescatter_follows_for_1_to_8_ranks() {
    assert_follows_for_1_to_8_ranks(Collective::ReduceScatter);
}

#[test]
fn the_table_of_broadcast_follows_for_1_to_8_ranks() {
    assert_follows_for_1_to_8_ranks(Collective::Broadcast);
}

#[test]
fn the_table_of_reduce_follows_for_1_to_8_ranks() {
    assert_follows_for_1_to_8_ranks(Collective::Reduce);
}

#[test]
fn the_table_of_alltoall_follows_for_1_to_8_ranks() {
    assert_follows_for_1_to_8_ranks(Collective::AllToAll);
}

#[test]
fn the_table_of_gather_follows_for_1_to_8_ranks() {
    assert_follows_for_1_to_8_ranks(Collective::Gather);
}

#[test]
fn the_table_of_scatter_follows_for_1_to_8_ranks() {
    assert_follows_for_1_to_8_ranks(Collective::Scatter);
}

#[test]
fn the_table_of_sendrecv_follows_for_1_to_8_ranks() {
    assert_follows_for_1_to_8_ranks(Collective::SendRecv);
}

#[test]
fn every_rank_can_be_the_root_and_no_other() {
    for &collective in Collective::ALL.iter().filter(|collective| collective.is_rooted()) {
        let (table, text) = table_of(collective, "-b 48 -e 96000 -f 2000 -n 1 -r all", 3, 0);
        let roots: Vec<_> = table.rows.iter().map(|row| row.root).collect();
        assert_eq!(roots, [0, 0, 1, 1, 2, 2], "{text}");
        let ended = run(program(collective), "--device soft --ranks 2 -b 8 -e 8 -r 2").expect(1);
        assert!(ended.stderr.contains("-r 2 is no rank: there are 2"), "{}", ended.stderr);
    }
}

#[test]
fn every_collective_is_exact_on_slices_of_the_programs_own() {
    for &collective in Collective::ALL {
        let line = "--plain --wire mapped -b 48 -e 3M -f 256 -n 2 -w 1 -r 1";
        let (table, text) = table_of(collective, line, 3, 0);
        assert_eq!(table.rows.len(), 3, "{text}");
        assert!(measured(&table).all(|measured| measured.wrong == Some(0.0)), "{text}");
    }
}

#[test]
fn every_type_and_reduction_is_exact_for_every_collective() {
    for &collective in &Collective::ALL[1..] {
        let line = "-b 6K -e 6K -n 1 -w 0 -o all -d all -m 2 -u 3 -r 2";
        let (table, text) = table_of(collective, line, 3, 0);
        assert_eq!(table.rows.len(), if collective.reduces() { 12 * 5 } else { 12 }, "{text}");
        assert!(measured(&table).all(|measured| measured.wrong == Some(0.0)), "{text}");
    }
}

/// Whether the program counts a wrong element, and only out of place, when a byte of the `nth` payload is flipped.
/// Among payloads are words of the protocol, some of which end the run, and such as nothing follows from.
fn counts_corrupted(collective: Collective, nth: u32) -> bool {
    // Rank 0 receives.
    let root = u32::from(matches!(collective, Collective::Broadcast | Collective::Scatter));
    let line = format!("--device soft --ranks 2 -b 4M -e 4M -n 1 -w 0 --fault corrupt@{nth} -r {root}");
    let ended = run(program(collective), &line);
    let table = ParsedTable::parse(&ended.stdout).ok().filter(|table| !table.ok);
    table.is_some_and(|table| {
        let text = ended.expect(1).stdout;
        table.verify(collective, 2).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(table.out_of_bounds, 1, "{text}");
        table.rows[0].out_of_place.wrong >= Some(1.0)
    })
}

#[test]
fn a_corrupted_byte_is_counted_by_every_collective() {
    for &collective in &Collective::ALL[1..] {
        assert!((2..8).any(|nth| counts_corrupted(collective, nth)), "{collective:?} counts none");
    }
}

#[test]
fn ranks_take_the_wire_that_is_named() {
    for wire in ["mapped", "tcp"] {
        let (table, text) = table(&format!("--wire {wire} -b 8 -e 2M -f 64 -n 2 -w 1"), 4, 0);
        assert!(measured(&table).all(|measured| measured.wrong == Some(0.0)), "{text}");
        assert_eq!(text.matches(&format!("software device, wire {wire},")).count(), 4, "{text}");
    }
}

#[test]
fn counts_that_do_not_divide_among_the_ranks_and_zero_are_right() {
    let (table, _) = table("-b 0 -e 52 -i 4 -n 1 -w 0", 3, 0);
    assert_eq!(table.rows.len(), 14);
    assert_eq!((table.rows[0].count, table.rows[0].in_place.algbw.value), (0, 0.0));
}

#[test]
fn half_precision_is_exact_too() {
    let (table, _) = table("-b 3 -e 300003 -i 100000 -n 1 -d half", 4, 0);
    assert_eq!(table.rows[3].bytes, 300_002);
    assert!(table.rows.iter().all(|row| row.dtype == "half" && row.redop == "sum" && row.root == -1));
}

#[test]
fn every_type_and_reduction_is_exact_in_ring_order_and_in_the_order_of_ranks() {
    for order in ["", "--reproducible"] {
        let (table, text) = table(&format!("-b 6K -e 6K -n 1 -w 0 -o all -d all {order}"), 3, 0);
        assert_eq!(table.rows.len(), 12 * 5, "{text}");
        let names = |row: usize| (table.rows[row].dtype.as_str(), table.rows[row].redop.as_str());
        assert_eq!((names(0), names(4), names(5)), (("int8", "sum"), ("int8", "avg"), ("uint8", "sum")));
        assert_eq!(names(59), ("bfloat16", "avg"));
        assert!(measured(&table).all(|measured| measured.wrong == Some(0.0)), "{text}");
    }
}

#[test]
fn the_flags_of_timing_change_no_result() {
    for flags in ["-z 0 -a 0", "-z 1 -a 1 -m 3", "-z 2 -a 2 -u 1", "-z 3 -a 3 -m 2 -u 7 -r 1"] {
        let (table, text) = table(&format!("-b 4K -e 4K -n 3 -d bfloat16 -o avg {flags}"), 2, 0);
        assert!(table.rows[0].out_of_place.time_us.value > 0.0, "{flags}: {text}");
        assert_eq!(table.rows[0].in_place.wrong, Some(0.0), "{flags}: {text}");
    }
}

#[test]
fn messages_beyond_the_staging_memory_are_right() {
    let (table, _) = table("-b 9000004 -e 9000004 -n 1 -w 0", 2, 0);
    assert_eq!(table.rows[0].count, 2_250_001);
}

#[test]
fn without_a_check_nothing_is_said_to_be_right() {
    let (table, text) = table("-b 1K -e 1K -n 1 -c 0", 2, 0);
    assert_eq!(table.rows[0].in_place.wrong, None);
    assert!(text.contains("N/A"), "{text}");
}

#[test]
fn a_corrupted_byte_is_counted_and_fails_the_run() {
    let (table, text) = table("-b 4M -e 4M -n 1 -w 0 --fault corrupt@5", 2, 1);
    assert!(!table.ok && table.out_of_bounds == 1, "{text}");
    assert!(table.rows[0].out_of_place.wrong >= Some(1.0), "{text}");
    assert!(text.contains("FAILED"), "{text}");
}

#[test]
fn the_json_file_says_what_the_table_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let (table, text) = table(&format!("-b 64 -e 256 -f 2 -n 1 -J {}", path.display()), 2, 0);
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(json["results"].as_array().unwrap().len(), table.rows.len());
    assert_eq!(json["results"][2]["size"], 256);
    assert_eq!(json["out_of_bounds"]["okay"], "true");
    assert_eq!(json["config"]["devices"].as_array().unwrap().len(), 2);
    assert!(text.contains("# Writing JSON output to"), "{text}");
}

#[test]
fn a_json_file_that_cannot_be_written_is_an_error_before_the_run() {
    let ended = run(ALLREDUCE, "--device soft --ranks 2 -b 8 -e 8 -J /nonexistent/run.json").expect(1);
    assert!(ended.stderr.contains("/nonexistent/run.json"), "{}", ended.stderr);
}

#[test]
fn runs_are_drawn_into_one_picture_with_saved_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    table_of(Collective::AllGather, &format!("-b 1K -e 4K -f 2 -n 1 -J {}", path("before.json")), 2, 0);
    let line = format!("-b 1K -e 4K -f 2 -n 1 --plot {} --overlay {}", path("run.svg"), path("before.json"));
    table(&line, 2, 0);
    let drawn = std::fs::read_to_string(path("run.svg")).unwrap();
    for text in
        ["bus bandwidth (GB/s)", "time (us)", "allreduce, float sum: in place", "before, float: out of place"]
    {
        assert!(drawn.contains(text), "{text} in {drawn}");
    }
    for (flags, what) in [
        ("--plot /nonexistent/run.svg".to_owned(), "--plot /nonexistent/run.svg"),
        (format!("--plot {} --overlay {}", path("x.svg"), path("run.svg")), "holds no run"),
    ] {
        let ended = run(ALLREDUCE, &format!("--device soft --ranks 2 -b 8 -e 8 {flags}")).expect(1);
        assert!(ended.stderr.contains(what), "{}", ended.stderr);
    }
    assert!(run(ALLREDUCE, "--overlay run.json").expect(2).stderr.contains("--plot"));
}

#[test]
fn minbytes_above_maxbytes_is_an_error() {
    let ended = run(ALLREDUCE, "-b 1G -e 1M").expect(2);
    assert!(ended.stderr.contains("-b 1G") && ended.stderr.contains("above"), "{}", ended.stderr);
    table("-b 8 -e 8 -n 1", 2, 0);
}

#[test]
fn sizes_that_overflow_are_errors() {
    for line in ["-b 1 -e 9999999999G", "-e 18446744073709551616"] {
        let ended = run(ALLREDUCE, line).expect(2);
        assert!(ended.stderr.contains("overflows"), "{}", ended.stderr);
    }
    table("-b 8 -e 8 -n 1", 2, 0);
}

#[test]
fn buffers_beyond_memory_are_an_error() {
    let ended = run(ALLREDUCE, "--device soft -b 1 -e 1000000G -f 2 --ranks 2").expect(1);
    assert!(ended.stderr.contains("lower -e, -m or --ranks"), "{}", ended.stderr);
    let port = free_port().to_string();
    let alone = [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &*port)];
    let ended = start_with(ALLREDUCE, "--device soft -b 1 -e 1000000G -f 2", &alone).finish().expect(1);
    assert!(ended.stderr.contains("lower -e, -m or --ranks"), "{}", ended.stderr);
    table("-b 8 -e 8 -n 1", 2, 0);
}

#[test]
fn an_unknown_device_is_an_error() {
    let ended = run(ALLREDUCE, "--device nosuch0 --ranks 2 -b 8 -e 8").expect(1);
    assert!(ended.stderr.contains("nosuch0"), "{}", ended.stderr);
    assert!(!ended.stdout.contains("busbw"), "{}", ended.stdout);
    assert!(run(ALLREDUCE, "--device= -b 8 -e 8").expect(2).stderr.contains("--device"));
    table("-b 8 -e 8 -n 1", 2, 0);
}

#[test]
fn the_header_has_device_and_wire_and_why_not_the_others() {
    for device in ["soft", "auto"] {
        let text = run(ALLREDUCE, &format!("--device {device} --ranks 2 -b 8 -e 8 -n 1")).expect(0).stdout;
        assert!(text.contains(" device  0 [") && text.contains(", wire "), "{text}");
        assert!(common::refused(&text) > 0, "{text}");
    }
}

#[test]
fn arguments_and_variables_that_are_no_text_do_not_stop_the_file() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(OsStr::from_bytes(b"run\xff.json"));
    let ended = std::process::Command::new(ALLREDUCE)
        .args(["--device", "soft", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1", "-J"])
        .arg(&path)
        .env("NCCL_PROTO", OsStr::from_bytes(b"\xfe"))
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(json["results"].as_array().unwrap().len(), 1);
}

#[test]
fn ranks_can_be_started_one_by_one() {
    let port = free_port().to_string();
    let rank = |rank| {
        let variables =
            [("RANK", rank), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port)];
        start_with(ALLREDUCE, "--device soft -b 8 -e 8 -n 1", &variables)
    };
    let (first, second) = (rank("0"), rank("1"));
    let (first, second) = (first.finish().expect(0), second.finish().expect(0));
    ParsedTable::parse(&first.stdout).unwrap().verify(Collective::AllReduce, 2).unwrap();
    assert_eq!(second.stdout, "");
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let port = free_port().to_string();
    let variables =
        [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port.as_str())];
    let ended = start_with(ALLREDUCE, "--device soft -b 8 -e 8 -T 2", &variables).finish().expect(1);
    assert!(ended.stderr.contains("rank 1"), "{}", ended.stderr);
}
