//! `kvcache_transfer` as people run it: two processes on this host, on the software device.

mod common;

use common::{Ended, Running, TOKEN, free_port, run, start_with};
use rustix::process::Signal;
use serde_json::Value;
use std::time::{Duration, Instant};

const KVCACHE: &str = env!("CARGO_BIN_EXE_kvcache_transfer");
/// The software device's, to another process.
const WIRES: [&str; 2] = ["mapped", "tcp"];

/// Runs both sides by one command to the status `code`, and reads its JSON.
fn json(line: &str, code: i32) -> Value {
    let ended = run(KVCACHE, &format!("--device soft --json {line}")).expect(code);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.stdout))
}

/// Starts the side that waits and the one that goes to it, by two commands.
fn sides(waits: &str, goes: &str) -> [Running; 2] {
    let port = free_port();
    let side = |line: &str| start_with(KVCACHE, line, &[TOKEN]);
    let first = side(&format!("--device soft --listen 127.0.0.1:{port} {waits}"));
    [first, side(&format!("--device soft --peer 127.0.0.1:{port} {goes}"))]
}

fn finish(sides: [Running; 2], code: i32) -> [Ended; 2] {
    sides.map(|side| side.finish().expect(code))
}

#[test]
fn every_models_blocks_arrive_and_nothing_else_changes() {
    for (model, layers, token_bytes) in [
        ("Llama-3.1-8B", 32, 131_072_u64),
        ("Llama-3.1-70B", 80, 327_680),
        ("DeepSeek-R1-Distill-Qwen-32B", 64, 262_144),
        ("DeepSeek-V3", 61, 70_272),
    ] {
        let report = json(&format!("--model {model} --prompt 33 --block 16"), 0);
        assert_eq!(report["bytes"], token_bytes * 48, "{report}");
        assert_eq!(
            (&report["blocks"], &report["blocks_verified"]),
            (&Value::from(layers * 3), &Value::from(layers * 3))
        );
        assert_eq!((&report["other_bytes_changed"], &report["ok"]), (&Value::from(0), &Value::from(true)));
        assert_eq!(
            (&report["device"]["name"], &report["device"]["wire"]),
            (&"soft0".into(), &"mapped".into())
        );
        let (speed, took) =
            (report["gigabytes_per_second"].as_f64().unwrap(), report["last_block_ms"].as_f64().unwrap());
        let expected = (token_bytes * 48) as f64 / 1e6 / took;
        assert!((speed / expected - 1.0).abs() < 1e-6, "{report}");
    }
}

#[test]
fn the_table_says_what_the_json_says() {
    let ended = run(KVCACHE, "--device soft --prompt 100 --block 8 --seed 3 --checksums").expect(0);
    let row = ended.stdout.lines().find(|line| line.starts_with(' ')).unwrap();
    let columns: Vec<f64> = row.split_whitespace().map(|column| column.parse().unwrap()).collect();
    let [bytes, blocks, descriptors, _, _, verified] = columns[..] else { panic!("{row}") };
    assert_eq!((bytes, blocks, verified), ((131_072 * 104) as f64, 416.0, 416.0));
    assert!((1.0..=416.0).contains(&descriptors), "{row}");
    for text in [
        "Using device soft0, wire mapped",
        "Blocks verified      : 416 of 416 OK",
        "Other bytes changed  : 0 OK",
    ] {
        assert!(ended.stdout.contains(text), "{text}\n{}", ended.stdout);
    }
}

#[test]
fn blocks_go_over_the_wire_that_is_named_whichever_way() {
    for wire in WIRES {
        for way in ["", "--pull", "--stream"] {
            let one = json(&format!("--wire {wire} --prompt 64 {way}"), 0);
            assert_eq!(one["device"]["wire"], wire, "{one}");
            let counts = (&one["blocks_verified"], &one["other_bytes_changed"]);
            assert_eq!(counts, (&128.into(), &0.into()), "{one}");
            let flags = "--prompt 64 --requests 12 --concurrency 3 --abort-rate 50";
            let many = json(&format!("--wire {wire} {flags} {way}"), 0);
            let counts = (&many["verdicts_untrue"], &many["other_bytes_changed"]);
            assert_eq!((&many["device"]["wire"], counts), (&wire.into(), (&0.into(), &0.into())), "{many}");
        }
    }
}

#[test]
fn ranks_of_any_layout_fill_ranks_of_another() {
    // Flags, and the number of ranks of decode.
    for (flags, ranks) in [
        ("--tp 4:2 --head-order nhd:hnd --tensors 32 --stream", 2),
        ("--tp 4:2 --head-order nhd:hnd --tensors 32 --pull", 2),
        ("--tp 1:2 --tensors part --checksums", 2),
        ("--tp 2:1 --head-order hnd:nhd --stream --wire tcp", 1),
        ("--tp 2:4 --pull --wire tcp", 4),
        // More ranks than there are heads: two hold each.
        ("--tp 1:16 --tensors layer", 16),
        ("--tp 16:1", 1),
        ("--tp 1:1 --head-order hnd:nhd --tensors 64", 1),
    ] {
        let report = json(&format!("--prompt 60 {flags}"), 0);
        let blocks = 32 * 4 * ranks;
        assert_eq!(
            (&report["blocks"], &report["blocks_verified"], &report["other_bytes_changed"]),
            (&blocks.into(), &blocks.into(), &0.into()),
            "{flags}: {report}"
        );
        let copies = if flags.contains("1:16") { 2 } else { 1 };
        assert_eq!(report["bytes"], copies * 131_072_u64 * 64, "{flags}: {report}");
    }
    // A latent is whole on each rank, and each rank of decode hears one.
    let report = json("--model deepseek-v3 --prompt 16 --tp 4:2", 0);
    assert_eq!((&report["blocks_verified"], &report["bytes"]), (&122.into(), &(2 * 16 * 70_272_u64).into()));
}

#[test]
fn many_requests_may_differ_in_layout() {
    for way in ["", "--pull", "--stream --checksums"] {
        let flags =
            "--prompt 64 --requests 12 --concurrency 3 --abort-rate 50 --head-order nhd:hnd --tensors layer";
        let many = json(&format!("{flags} {way}"), 0);
        let counts = (&many["verdicts_untrue"], &many["other_bytes_changed"], &many["ok"]);
        assert_eq!(counts, (&0.into(), &0.into(), &true.into()), "{many}");
    }
}

#[test]
fn layouts_that_do_not_go_together_are_refused_in_a_line() {
    for (flags, why) in [
        ("--tp 3:2", "8 key-value heads and 3 tensor-parallel ranks do not divide"),
        ("--tensors 7", "has no 7 tensors; it has 1, 32 (one a layer) or 64"),
        ("--tp 2:1 --requests 2", "--tp moves one request"),
        ("--tp 2:1 --role prefill --rank 2", "--rank 2 of 2"),
        ("--tp 2:1 --role prefill --rank 1 --listen 127.0.0.1:65535", "choose a lower one than 65535"),
        ("--tp 2:1 --role decode", "set it for all ranks"),
    ] {
        let ended = run(KVCACHE, &format!("--device soft --prompt 16 {flags}")).expect(1);
        assert!(
            ended.stderr.contains(why) && ended.stderr.trim_end().lines().count() == 1,
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn ranks_are_started_one_by_one_and_either_side_may_wait() {
    for sides in [["decode", "prefill"], ["prefill", "decode"]] {
        let port = free_port();
        let start = |role: &str, rank: u32| {
            let at = if role == sides[0] { "listen" } else { "peer" };
            let flags = format!("--prompt 40 --tp 2:2 --head-order nhd:hnd --role {role} --rank {rank}");
            start_with(KVCACHE, &format!("--device soft {flags} --{at} 127.0.0.1:{port}"), &[TOKEN])
        };
        let ranks = sides.map(|role| [0, 1].map(|rank| (role, start(role, rank))));
        for (role, rank) in ranks.into_iter().flatten() {
            let text = rank.finish().expect(0).stdout;
            let verdict = if role == "decode" { "96 of 96 OK" } else { "corrupt: 0 OK" };
            assert!(text.contains(verdict), "{role}: {text}");
        }
    }
}

#[test]
fn a_rank_that_fails_is_named_and_fails_the_run() {
    let ended = run(KVCACHE, "--device soft --prompt 64 --tp 4:2 --fault corrupt@9").expect(1);
    // The fault is at each rank of decode.
    assert!(ended.stdout.contains("254 of 256 FAILED (0 missing, 2 corrupt)"), "{}", ended.stdout);
    let port = free_port();
    let flags = "--device soft --prompt 4096 -T 100 --tp 2:1";
    let start = |flags: String| start_with(KVCACHE, &flags, &[TOKEN]);
    let mut decode = start(format!("{flags} --role decode --listen 127.0.0.1:{port}"));
    let prefill = |rank: u32| start(format!("{flags} --role prefill --rank {rank} --peer 127.0.0.1:{port}"));
    let [first, second] = [0, 1].map(prefill);
    decode.wait_for("Using device"); // connected
    drop(second);
    let decode = decode.finish().expect(1);
    assert!(decode.stderr.contains("the source at "), "{}", decode.stderr);
    assert!(decode.stdout.contains("missing"), "{}", decode.stdout);
    assert!(decode.stdout.contains("Other bytes changed  : 0 OK"), "{}", decode.stdout);
    drop(first);
}

#[test]
fn a_device_that_is_not_there_brings_the_findings_of_the_doctor() {
    let ended = run(KVCACHE, "--device nowhere0 --prompt 16").expect(1);
    // Each side tells of it: `device-missing`, or `device-unknown` where there are others.
    assert!(ended.stderr.contains("error: device-") && ended.stderr.contains("  pod spec: "), "{ended:?}");
}

#[test]
fn sides_that_were_given_different_wires_both_end_by_an_error() {
    for (one, other) in [("mapped", "tcp"), ("tcp", "mapped")] {
        let flags = "--prompt 16 -T 100";
        let sides = sides(
            &format!("--role decode {flags} --wire {one}"),
            &format!("--role prefill {flags} --wire {other}"),
        );
        let begin = Instant::now();
        let [decode, prefill] = finish(sides, 1);
        assert!(begin.elapsed() < Duration::from_secs(90), "they waited for their deadlines");
        let (mapped, tcp) = if one == "mapped" { (decode, prefill) } else { (prefill, decode) };
        assert!(mapped.stderr.contains("the peer is not mapped"), "{}", mapped.stderr);
        assert!(tcp.stderr.contains("was lost"), "{}", tcp.stderr);
    }
}

#[test]
fn sides_are_started_one_by_one_and_either_may_wait() {
    for (waits, goes) in [("decode", "prefill"), ("prefill", "decode")] {
        let flags = "--model deepseek-v3 --prompt 40";
        let [waiting, going] =
            finish(sides(&format!("--role {waits} {flags}"), &format!("--role {goes} {flags}")), 0);
        let (prefill, decode) = if waits == "prefill" { (waiting, going) } else { (going, waiting) };
        assert!(decode.stdout.contains("183 of 183 OK"), "{}", decode.stdout);
        assert!(prefill.stdout.contains("corrupt: 0 OK"), "{}", prefill.stdout);
        assert!(prefill.stdout.contains("Using device soft0"), "{}", prefill.stdout);
    }
}

#[test]
fn a_corrupted_byte_is_one_corrupt_block_and_fails_the_run() {
    for flags in ["", "--checksums"] {
        let report = json(&format!("--prompt 64 --fault corrupt@9 {flags}"), 1);
        assert_eq!(
            (&report["blocks_corrupt"], &report["blocks_verified"]),
            (&Value::from(1), &Value::from(127))
        );
        assert_eq!((&report["blocks_missing"], &report["ok"]), (&Value::from(0), &Value::from(false)));
    }
    let table = run(KVCACHE, "--device soft --prompt 64 --fault corrupt@9").expect(1);
    assert!(table.stdout.contains("127 of 128 FAILED (0 missing, 1 corrupt)"), "{}", table.stdout);
}

#[test]
fn many_requests_at_once_are_verified_and_timed() {
    let report = json("--prompt 64 --requests 12 --concurrency 3", 0);
    let blocks = Value::from(12 * 128);
    assert_eq!((&report["completed"], &report["aborted"]), (&Value::from(12), &Value::from(0)));
    assert_eq!((&report["blocks_verified"], &report["bytes"]), (&blocks, &Value::from(12 * (8_u64 << 20))));
    let [p50, p99, max] = ["p50_ms", "p99_ms", "max_ms"].map(|of| report["latency"][of].as_f64().unwrap());
    assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{report}");
    let table = run(KVCACHE, "--device soft --model deepseek-v3 --prompt 16 --requests 3").expect(0).stdout;
    assert!(table.contains("p99") && table.contains("183 of 183 OK"), "{table}");
}

#[test]
fn pulled_and_streamed_requests_are_right_too() {
    for way in ["--pull", "--stream", "--pull --checksums", "--stream --checksums"] {
        let one = json(&format!("--prompt 64 {way}"), 0);
        assert_eq!((&one["blocks_verified"], &one["other_bytes_changed"]), (&128.into(), &0.into()), "{one}");
        let many = json(&format!("--prompt 64 --requests 6 --concurrency 2 {way}"), 0);
        let counts = (&many["completed"], &many["blocks_verified"], &many["other_bytes_changed"]);
        assert_eq!(counts, (&6.into(), &(6 * 128).into(), &0.into()), "{many}");
    }
    let [decode, prefill] = finish(sides("--role decode --pull", "--role prefill --pull"), 0);
    assert!(decode.stdout.contains("2048 of 2048 OK"), "{}", decode.stdout);
    assert!(prefill.stdout.contains("corrupt: 0 OK"), "{}", prefill.stdout);
}

#[test]
fn requests_that_are_given_up_leave_the_others_and_their_blocks_right() {
    for way in ["", "--stream", "--pull", "--pull --checksums"] {
        let report = json(&format!("--prompt 128 --requests 24 --concurrency 4 --abort-rate 50 {way}"), 0);
        let count = |of: &str| report[of].as_u64().unwrap();
        assert!(count("aborted") >= 6 && count("completed") >= 6, "{report}");
        assert_eq!((count("aborted") + count("completed"), count("verdicts_untrue")), (24, 0), "{report}");
        assert_eq!((count("blocks_verified"), count("other_bytes_changed")), (count("completed") * 256, 0));
        assert!(report["revocation"]["max_ms"].as_f64().unwrap() > 0.0, "{report}");
    }
}

#[test]
fn a_streamed_request_that_is_late_says_so_and_not_that_its_blocks_are_held() {
    let flags = "--prompt 512 --requests 5000 --stream";
    let [mut decode, prefill] =
        sides(&format!("--role decode {flags} -T 2"), &format!("--role prefill {flags}"));
    decode.wait_for("Using device"); // connected
    prefill.signal(Signal::STOP);
    let error = decode.finish().expect(1).stderr;
    assert!(error.contains("request ") && !error.contains("to a transfer that"), "{error}");
}

#[test]
fn a_corrupted_byte_among_many_requests_fails_the_run() {
    let report = json("--prompt 64 --requests 4 --concurrency 2 --fault corrupt@9", 1);
    assert_eq!(
        (&report["verdicts_untrue"], &report["ok"]),
        (&Value::from(1), &Value::from(false)),
        "{report}"
    );
}

#[test]
fn with_checksums_prefill_learns_of_a_corrupt_block() {
    let decode = "--role decode --prompt 64 --checksums --fault corrupt@9";
    let [_, prefill] = finish(sides(decode, "--role prefill --prompt 64"), 1);
    assert!(prefill.stdout.contains("corrupt: 1 FAILED"), "{}", prefill.stdout);
}

#[test]
fn contents_of_another_seed_are_corrupt() {
    let [decode, prefill] =
        sides("--role decode --prompt 16 --seed 1", "--role prefill --prompt 16 --seed 2");
    let decode = decode.finish().expect(1);
    assert!(decode.stdout.contains("0 of 32 FAILED (0 missing, 32 corrupt)"), "{}", decode.stdout);
    prefill.finish().expect(0);
}

#[test]
fn pools_of_another_model_are_refused_on_both_sides() {
    let sides = sides("--role decode --prompt 16", "--role prefill --prompt 16 --model llama-3.1-70b");
    for side in finish(sides, 1) {
        assert!(side.stderr.contains("layers"), "{}", side.stderr);
    }
}

#[test]
fn another_number_of_blocks_is_refused_on_both_sides() {
    let sides = sides("--role decode --prompt 16", "--role prefill --prompt 32");
    for side in finish(sides, 1) {
        assert!(side.stderr.contains("blocks"), "{}", side.stderr);
    }
}

#[test]
fn a_pool_beyond_memory_is_an_error() {
    for flags in ["", "--role decode", "--role prefill --peer 127.0.0.1:1"] {
        let ended = run(KVCACHE, &format!("--device soft --prompt 134217728 {flags}")).expect(1);
        assert!(ended.stderr.contains("lower --prompt"), "{}", ended.stderr);
    }
    json("--prompt 16", 0);
}

#[test]
fn an_unknown_device_is_an_error() {
    let ended = run(KVCACHE, "--device nosuch0 --prompt 16").expect(1);
    assert!(ended.stderr.contains("nosuch0"), "{}", ended.stderr);
    assert!(!ended.stdout.contains("Using device"), "{}", ended.stdout);
    assert!(run(KVCACHE, "--device= --prompt 16").expect(2).stderr.contains("--device"));
    json("--prompt 16", 0);
}

#[test]
fn the_header_has_device_and_wire_and_why_not_the_others() {
    for device in ["soft", "auto"] {
        let text = run(KVCACHE, &format!("--device {device} --prompt 16")).expect(0).stdout;
        assert!(text.contains("# Using device ") && text.contains(", wire "), "{text}");
        assert!(common::refused(&text) > 0, "{text}");
    }
}

#[test]
fn a_side_that_nobody_meets_ends_at_its_deadline() {
    let port = free_port();
    for flags in [
        format!("--role decode --listen 127.0.0.1:{port}"),
        format!("--role prefill --peer 127.0.0.1:{port}"),
    ] {
        let line = format!("--device soft --prompt 16 -T 1 {flags}");
        let ended = start_with(KVCACHE, &line, &[TOKEN]).finish().expect(1);
        // Why, and once.
        let cause = if flags.contains("decode") { "no process of this job" } else { "Connection refused" };
        assert_eq!(ended.stderr.matches(cause).count(), 1, "{}", ended.stderr);
    }
}

#[test]
fn the_side_that_waits_draws_a_token_and_the_other_asks_for_it() {
    let port = free_port();
    let goes = format!("--device soft --prompt 16 --role prefill --peer 127.0.0.1:{port}");
    let told = run(KVCACHE, &goes).expect(1).stderr;
    assert!(told.contains("RDMA_JOB_TOKEN is not set") && told.contains("has printed"), "{told}");
    let waits = format!("--device soft --prompt 16 --role decode --listen 127.0.0.1:{port}");
    let mut decode = start_with(KVCACHE, &waits, &[]);
    decode.wait_for_error("export RDMA_JOB_TOKEN=");
    let told = decode.stderr();
    let (_, token) = told.trim_end().rsplit_once("RDMA_JOB_TOKEN=").unwrap();
    start_with(KVCACHE, &goes, &[("RDMA_JOB_TOKEN", token)]).finish().expect(0);
    assert!(!decode.finish().expect(0).stdout.contains(token));
    let mut other = start_with(KVCACHE, &waits, &[]);
    other.wait_for_error("export RDMA_JOB_TOKEN=");
    assert!(!other.stderr().contains(token), "all jobs draw one token");
}

#[test]
fn decode_of_a_killed_prefill_ends_and_says_what_is_missing() {
    for wire in WIRES {
        let flags = format!("--prompt 4096 -T 100 --wire {wire}");
        let [mut decode, prefill] =
            sides(&format!("--role decode {flags}"), &format!("--role prefill {flags}"));
        decode.wait_for("Using device"); // connected
        drop(prefill);
        let begin = Instant::now();
        let decode = decode.finish().expect(1);
        assert!(begin.elapsed() < Duration::from_secs(90), "it waited for its deadline");
        assert!(decode.stdout.contains("missing"), "{}", decode.stdout);
        assert!(decode.stdout.contains("Other bytes changed  : 0 OK"), "{}", decode.stdout);
    }
}

#[cfg(not(feature = "metrics"))]
#[test]
fn a_program_that_is_built_without_metrics_says_how_to_build_it_with_them() {
    let ended = run(KVCACHE, "--metrics 127.0.0.1:9464").expect(2);
    assert!(ended.stderr.contains("--features metrics"), "{}", ended.stderr);
}

#[cfg(feature = "metrics")]
#[test]
fn the_metrics_of_both_sides_can_be_scraped() {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    let scrape = |port: u16| {
        let mut text = String::new();
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
        stream.read_to_string(&mut text).map(|_| text)
    };
    let port = free_port();
    let line = format!("--device soft --metrics 127.0.0.1:{port} --prompt 64 --requests 1000000");
    let running = start_with(KVCACHE, &line, &[]);
    let begun = Instant::now();
    for (port, direction) in [(port, "received"), (port + 1, "sent")] {
        let named = format!("rdma_kv_bytes_total{{direction=\"{direction}\"}} ");
        loop {
            let text = scrape(port).unwrap_or_default();
            if text.contains(&named) && text.contains("rdma_kv_transfer_seconds_bucket") {
                assert!(text.contains("# HELP rdma_kv_bytes_total Bytes"), "{text}");
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{direction}: {text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    running.signal(Signal::TERM);
    running.finish();
}
