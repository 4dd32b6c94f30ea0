//! Beside `ibv_rc_pingpong` on a device of libibverbs: soft-RoCE, or a NIC.

use std::env;

use super::free_port::free_port;
use super::run::{Ended, Running, await_listening, pingpong, start};

const NOT_HERE: &str = "needs a device of libibverbs (its name is in ROCE_DEVICE), and ibv_rc_pingpong";

/// A program with the flags and the text of `ibv_rc_pingpong`.
type Program = fn(&str) -> Running;

fn c_program(line: &str) -> Running {
    start("ibv_rc_pingpong", line)
}

fn device() -> String {
    env::var("ROCE_DEVICE").unwrap_or_else(|_| panic!("{NOT_HERE}"))
}

/// Whether all is run that a soak runs.
fn is_soak() -> bool {
    env::var("SOAK").is_ok_and(|soak| soak == "full")
}

/// Runs a server and a client on the device, with flags for each.
fn pair(server: Program, client: Program, flags: [&str; 2]) -> [Ended; 2] {
    let port = free_port();
    let line = |flags| format!("-d {} -g 1 -p {port} {flags}", device());
    let mut server = server(&line(flags[0]));
    await_listening(&mut server, port);
    let client = client(&format!("{} 127.0.0.1", line(flags[1])));
    [client.finish(), server.finish()]
}

#[test]
#[ignore = "needs a device of libibverbs, and ibv_rc_pingpong"]
fn on_a_device_both_programs_understand_each_other_and_print_one_text() {
    let all = [
        "-e -n 100",
        "-n 100",
        "-n 10000",
        "-s 1",
        "-s 1048576 -n 20 -c",
        "-e -s 1048576 -n 20",
        "-r 1 -n 100",
    ];
    for flags in if is_soak() { &all[..] } else { &all[..1] } {
        for (server, client) in [(c_program as Program, pingpong as Program), (pingpong, c_program)] {
            let [client, server] = pair(server, client, [flags; 2]);
            assert_eq!(client.shape(), server.shape(), "{flags}");
        }
        println!("device {}: the same text with {flags}", device());
    }
}

#[test]
#[ignore = "needs a device of libibverbs, and ibv_rc_pingpong"]
fn on_a_device_wrong_bytes_are_found_and_marked_pages_are_right() {
    let flags = ["-c -s 8192 -n 10", "-s 8192 -n 10"];
    let invalid = |ended: &Ended| ended.stdout.lines().filter(|line| line.starts_with("invalid")).count();
    let [_, found] = pair(pingpong, c_program, flags);
    assert_eq!(invalid(&found), 2, "{found:?}");
    found.failed_with(&["-c found wrong bytes in 2 of the pages"]);
    let [client, server] = pair(c_program, pingpong, ["-c -s 8192 -n 10"; 2]);
    assert_eq!((invalid(&client), invalid(&server)), (0, 0), "{client:?} {server:?}");
}
