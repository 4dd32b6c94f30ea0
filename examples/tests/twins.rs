//! The twins of perftest as two processes each, on the software device.

mod common;

use common::{Ended, free_port, run, start};
use rustix::process::Signal;
use std::fs;
use std::time::Duration;

const WRITE_BW: &str = env!("CARGO_BIN_EXE_write_bw");
const WRITE_LAT: &str = env!("CARGO_BIN_EXE_write_lat");
const READ_BW: &str = env!("CARGO_BIN_EXE_read_bw");
const READ_LAT: &str = env!("CARGO_BIN_EXE_read_lat");
const SEND_BW: &str = env!("CARGO_BIN_EXE_send_bw");
const SEND_LAT: &str = env!("CARGO_BIN_EXE_send_lat");
/// The software device's, to another process.
const WIRES: [&str; 2] = ["mapped", "tcp"];

/// Runs a server and a client with the same flags.
fn pair(program: &str, flags: &str) -> (Ended, Ended) {
    let flags = format!("-d soft -p {} --timeout 120 {flags}", free_port());
    let server = start(program, &flags);
    let client = run(program, &format!("127.0.0.1 {flags}"));
    (server.finish(), client)
}

/// The numbers of each line of the table.
fn table(text: &str) -> Vec<Vec<f64>> {
    let after = text.split_once("#bytes").expect("a table").1;
    let rows = after.lines().skip(1).take_while(|line| !line.starts_with("---"));
    rows.map(|line| line.split_whitespace().map(|number| number.parse().unwrap()).collect()).collect()
}

#[test]
fn bandwidth_of_one_size() {
    let (server, client) = pair(WRITE_BW, "-s 4096 -n 300");
    let (server, client) = (server.expect(0), client.expect(0));
    let rows = table(&client.stdout);
    assert_eq!(rows, table(&server.stdout), "both sides print the client's measurement");
    let [row] = rows.as_slice() else { panic!("{}", client.stdout) };
    let [size, messages, peak, average, rate] = row[..] else { panic!("{row:?}") };
    assert_eq!((size, messages), (4096.0, 300.0));
    assert!(average > 0.0 && peak >= average * 0.99, "{row:?}");
    let from_rate = rate * 1e6 * 4096.0 / 1024.0 / 1024.0;
    assert!((from_rate / average - 1.0).abs() < 0.01 || (from_rate - average).abs() < 0.01, "{row:?}");
    for text in
        ["RDMA_Write BW Test", " Device          : soft0", " Wire            : mapped", "remote address: LID"]
    {
        assert!(client.stdout.contains(text), "{text}\n{}", client.stdout);
    }
}

#[test]
fn bandwidth_of_many_queue_pairs_inline_and_unmoderated() {
    let (server, client) = pair(WRITE_BW, "-s 64 -n 50 -q 4 -t 16 -Q 1 -I 64 -m 1024 -F");
    server.expect(0);
    let client = client.expect(0);
    assert_eq!(table(&client.stdout)[0][1], 200.0);
    assert_eq!(client.stdout.matches(" local address:").count(), 4);
}

/// Holds the one line of a latency test against what its figures must be to each other.
fn hold_latency(program: &str, flags: &str) -> [Ended; 2] {
    let (server, client) = pair(program, &format!("-n 300 {flags}"));
    let sides = [server.expect(0), client.expect(0)];
    for side in &sides {
        let rows = table(&side.stdout);
        let [size, iters, min, max, typical, average, _, p99, p99_9] = rows[0][..] else {
            panic!("{rows:?}")
        };
        assert_eq!((size, iters), (2.0, 300.0));
        assert!(0.0 < min && min <= typical && typical <= p99 && p99 <= p99_9 && p99_9 <= max, "{rows:?}");
        assert!(min <= average && average <= max, "{rows:?}");
    }
    sides
}

#[test]
fn latency_of_one_size() {
    hold_latency(WRITE_LAT, "");
}

#[test]
fn latency_of_reads_is_the_clients() {
    let [server, client] = hold_latency(READ_LAT, "");
    assert_eq!(table(&server.stdout), table(&client.stdout));
    assert!(client.stdout.contains("RDMA_Read Latency Test"), "{}", client.stdout);
}

#[test]
fn bandwidth_of_reads() {
    let (server, client) = pair(READ_BW, "-s 8K -n 100 -q 3 -o 4 -t 16 -Q 5");
    let (server, client) = (server.expect(0), client.expect(0));
    let rows = table(&client.stdout);
    assert_eq!(rows, table(&server.stdout));
    assert_eq!((rows[0][0], rows[0][1]), (8192.0, 300.0));
    for text in ["RDMA_Read BW Test", " Outstand reads  : 4"] {
        assert!(client.stdout.contains(text), "{text}\n{}", client.stdout);
    }
}

#[test]
fn both_sides_have_as_many_reads_outstanding_as_the_lesser_says() {
    let flags = format!("-d soft -p {} --timeout 120 -n 20 -s 64", free_port());
    let server = start(READ_BW, &format!("{flags} -o 3"));
    let client = run(READ_BW, &format!("127.0.0.1 {flags}")).expect(0);
    for side in [server.finish().expect(0), client] {
        assert!(side.stdout.contains(" Outstand reads  : 3"), "{}", side.stdout);
    }
}

#[test]
fn more_reads_than_the_device_takes_are_an_error() {
    let flags = format!("-d soft -p {} --timeout 120 -o 255", free_port());
    let server = start(READ_BW, &flags);
    let client = run(READ_BW, &format!("127.0.0.1 {flags}")).expect(1);
    assert!(client.stderr.contains("-o 255 is above what soft0 takes"), "{}", client.stderr);
    server.finish().expect(1);
}

#[test]
fn latency_of_sends_with_the_fewest_receives_and_with_many() {
    for flags in ["-r 1", "-r 2 -I 0", "-r 512"] {
        let [_, client] = hold_latency(SEND_LAT, flags);
        assert!(client.stdout.contains("                    Send Latency Test\n"), "{}", client.stdout);
    }
}

#[test]
fn bandwidth_of_sends_with_fewer_receives_than_sends_outstanding() {
    // A send that finds no receive fails: it is not tried again.
    for flags in ["-r 1 -Q 1", "-r 3", "-r 7 -q 3 -t 5 -Q 2", "-r 500 -t 8", "-r 600 -I 64"] {
        let (server, client) = pair(SEND_BW, &format!("-s 64 -n 500 {flags}"));
        let (server, client) = (server.expect(0), client.expect(0));
        let rows = table(&client.stdout);
        assert_eq!(rows, table(&server.stdout));
        assert!(rows[0][0] == 64.0 && rows[0][1] % 500.0 == 0.0 && rows[0][3] > 0.0, "{rows:?}");
        assert!(client.stdout.contains("                    Send BW Test\n"), "{}", client.stdout);
        assert!(server.stdout.contains(" RX depth        : "), "{}", server.stdout);
    }
}

#[test]
fn sends_into_the_smaller_of_both_sides_receive_queues() {
    let flags = format!("-d soft -p {} --timeout 120 -n 200 -s 64", free_port());
    let server = start(SEND_BW, &format!("{flags} -r 4"));
    run(SEND_BW, &format!("127.0.0.1 {flags} -r 100")).expect(0);
    let server = server.finish().expect(0);
    assert!(server.stdout.contains(" RX depth        : 4\n"), "{}", server.stdout);
}

fn assert_wire(side: &Ended, wire: &str) {
    assert!(side.stdout.contains(&format!(" Wire            : {wire}\n")), "{}", side.stdout);
}

/// Each of them runs on it, with its figures what they must be to each other.
#[test]
fn every_twin_runs_on_the_wire_that_is_named() {
    for wire in WIRES {
        for program in [WRITE_LAT, READ_LAT, SEND_LAT] {
            hold_latency(program, &format!("--wire {wire}")).iter().for_each(|side| assert_wire(side, wire));
        }
        for program in [WRITE_BW, READ_BW, SEND_BW] {
            let (server, client) = pair(program, &format!("--wire {wire} -s 64K -n 300 -q 2"));
            let (server, client) = (server.expect(0), client.expect(0));
            let rows = table(&client.stdout);
            assert_eq!(rows, table(&server.stdout));
            assert!(rows[0][0] == 65_536.0 && rows[0][1] == 600.0 && rows[0][3] > 0.0, "{rows:?}");
            [server, client].iter().for_each(|side| assert_wire(side, wire));
        }
    }
}

#[test]
fn every_twin_runs_all_sizes_on_the_wire_that_is_named() {
    for wire in WIRES {
        for program in [WRITE_BW, WRITE_LAT, READ_BW, READ_LAT, SEND_BW, SEND_LAT] {
            let (server, client) = pair(program, &format!("-a -n 5 --wire {wire}"));
            assert_wire(&server.expect(0), wire);
            let sizes: Vec<f64> = table(&client.expect(0).stdout).iter().map(|row| row[0]).collect();
            assert_eq!(sizes, (1..=23).map(|power| f64::from(1 << power)).collect::<Vec<_>>());
        }
    }
}

#[test]
fn sides_that_were_given_different_wires_both_say_so() {
    let flags = format!("-d soft -p {} --timeout 120", free_port());
    let server = start(READ_LAT, &format!("{flags} --wire tcp"));
    let client = run(READ_LAT, &format!("127.0.0.1 {flags}"));
    for side in [server.finish().expect(1), client.expect(1)] {
        assert!(side.stderr.contains("the wire differs"), "{}", side.stderr);
    }
}

#[test]
fn figures_are_saved_and_drawn_over_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).into_os_string().into_string().unwrap();
    let (server, client) = pair(WRITE_BW, &format!("-a -n 5 --json {}", path("first.json")));
    let rows = table(&client.expect(0).stdout);
    assert_eq!(table(&server.expect(0).stdout), rows);
    let saved: serde_json::Value = serde_json::from_slice(&fs::read(path("first.json")).unwrap()).unwrap();
    assert_eq!((&saved["test"], &saved["device"]), (&"write_bw".into(), &"soft0".into()));
    let saved = saved["bandwidth"].as_array().unwrap();
    let figures =
        saved.iter().map(|line| [&line["bytes"], &line["average_mib_s"]].map(|it| it.as_f64().unwrap()));
    for ([size, average], row) in figures.zip(&rows) {
        assert!(size == row[0] && (average - row[3]).abs() < 0.006, "{size} {average} {row:?}");
    }
    assert_eq!(saved.len(), rows.len());
    let overlay = format!("-a -n 5 --plot {} --overlay {}", path("both.svg"), path("first.json"));
    let (server, client) = pair(WRITE_BW, &overlay);
    server.expect(0);
    client.expect(0);
    let drawn = fs::read_to_string(path("both.svg")).unwrap();
    for text in [">write_bw, soft0, mapped<", ">write_bw, soft0, mapped (first)<", ">4 KiB<", "(MiB/s)<"] {
        assert!(drawn.contains(text), "{text}\n{drawn}");
    }
}

#[test]
fn a_curve_of_another_kind_is_refused_before_the_other_side_is_met() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).into_os_string().into_string().unwrap();
    let (server, client) = pair(WRITE_LAT, &format!("-n 5 --json {}", path("latency.json")));
    server.expect(0);
    client.expect(0);
    let flags = format!("--plot {} --overlay {}", path("x.svg"), path("latency.json"));
    let refused = run(WRITE_BW, &flags).expect(1);
    assert!(refused.stderr.contains("latency.json holds a run of write_lat"), "{}", refused.stderr);
    assert!(!refused.stdout.contains("Waiting"), "{}", refused.stdout);
}

#[test]
fn sides_with_different_flags_both_fail_and_say_which() {
    let flags = format!("-d soft -p {} --timeout 120", free_port());
    let server = start(WRITE_BW, &format!("{flags} -s 64"));
    let client = run(WRITE_BW, &format!("127.0.0.1 {flags} -s 128"));
    for side in [server.finish().expect(1), client.expect(1)] {
        assert!(side.stderr.contains("-s differs"), "{}", side.stderr);
    }
}

#[test]
fn a_latency_client_and_a_bandwidth_server_do_not_mix() {
    let flags = format!("-d soft -p {} --timeout 120 -n 5 -s 8", free_port());
    let server = start(WRITE_BW, &flags);
    let client = run(WRITE_LAT, &format!("127.0.0.1 {flags}")).expect(1);
    assert!(client.stderr.contains("the test differs"), "{}", client.stderr);
    server.finish().expect(1);
}

#[test]
fn an_unknown_device_is_an_error_on_both_sides() {
    let flags = format!("-d nosuch0 -p {} --timeout 120", free_port());
    let server = start(WRITE_BW, &flags);
    let client = run(WRITE_BW, &format!("127.0.0.1 {flags}")).expect(1);
    assert!(client.stderr.contains("nosuch0"), "{}", client.stderr);
    server.finish().expect(1);
    let (server, client) = pair(WRITE_BW, "-s 64 -n 5");
    server.expect(0);
    client.expect(0);
}

#[test]
fn a_gid_index_that_does_not_exist_is_an_error() {
    let flags = format!("-d soft -p {} --timeout 120 -x 60", free_port());
    let server = start(WRITE_BW, &flags);
    let client = run(WRITE_BW, &format!("127.0.0.1 {flags}")).expect(1);
    assert!(client.stderr.contains("no GID at index 60"), "{}", client.stderr);
    server.finish().expect(1);
    let (server, client) = pair(WRITE_BW, "-s 64 -n 5 -x 1");
    server.expect(0);
    client.expect(0);
}

#[test]
fn a_client_without_a_server_ends() {
    let client = run(WRITE_BW, &format!("127.0.0.1 -d soft -p {}", free_port())).expect(1);
    assert!(client.stderr.contains("start the server first"), "{}", client.stderr);
}

/// Kills one side in the middle of a run, and expects the other one to say so long before its timeout.
fn kill(program: &str, wire: &str, server_is_killed: bool) {
    let size = if program.ends_with("bw") { "-s 65536 -n 10000000" } else { "-s 8 -n 5000000" };
    let flags = format!("-d soft --wire {wire} -p {} --timeout 600 {size}", free_port());
    let mut server = start(program, &flags);
    let mut client = start(program, &format!("127.0.0.1 {flags}"));
    for side in [&mut server, &mut client] {
        side.wait_for(if program.ends_with("bw") { "BW average" } else { "t_typical" }); // connected
    }
    std::thread::sleep(Duration::from_millis(200));
    let (killed, survivor) = if server_is_killed { (server, client) } else { (client, server) };
    drop(killed);
    let survivor = survivor.finish().expect(1);
    let name = program.rsplit('/').next().unwrap();
    assert!(survivor.stderr.starts_with(&format!("{name}: ")), "{}", survivor.stderr);
}

#[test]
fn a_killed_server_ends_the_client() {
    for program in [WRITE_BW, WRITE_LAT, READ_BW, READ_LAT, SEND_BW, SEND_LAT] {
        WIRES.iter().for_each(|wire| kill(program, wire, true));
    }
}

#[test]
fn a_killed_client_ends_the_server() {
    for program in [WRITE_BW, WRITE_LAT, READ_BW, READ_LAT, SEND_BW, SEND_LAT] {
        WIRES.iter().for_each(|wire| kill(program, wire, false));
    }
}

#[test]
fn a_stopped_client_ends_the_server_by_its_timeout() {
    let each = [(WRITE_LAT, "mapped"), (READ_LAT, "tcp"), (SEND_BW, "tcp"), (SEND_LAT, "mapped")];
    let pairs = each.map(|(program, wire)| {
        let flags = format!("-d soft --wire {wire} -p {} --timeout 15 -s 8 -n 5000000", free_port());
        let server = start(program, &flags);
        let mut client = start(program, &format!("127.0.0.1 {flags}"));
        client.wait_for("#bytes"); // connected
        client.signal(Signal::STOP);
        (server, client)
    });
    for (server, client) in pairs {
        let server = server.finish().expect(1);
        // A server that had sent something is told sooner by its device.
        let told = ["alive? raise --timeout", "RETRY_EXC_ERR"].map(|error| server.stderr.contains(error));
        assert!(told[0] || told[1], "{}", server.stderr);
        drop(client);
    }
}
