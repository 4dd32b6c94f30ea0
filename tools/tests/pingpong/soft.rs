//! Two sides on the software device.

use super::free_port::free_port;
use super::peer::Peer;
use super::run::{Ended, await_listening, pingpong};

/// Runs both sides with the same flags.
fn both(flags: &str) -> [Ended; 2] {
    let port = free_port();
    let server = pingpong(&format!("--soft -p {port} {flags}"));
    let client = pingpong(&format!("--soft -p {port} {flags} 127.0.0.1"));
    [client.finish(), server.finish()]
}

#[test]
fn both_sides_print_what_the_c_program_prints() {
    for (flags, bytes, iters) in [
        ("", 8_192_000, 1000),
        ("-e", 8_192_000, 1000),
        ("-n 10000", 81_920_000, 10_000),
        ("-s 1 -n 100 -c", 200, 100),
        ("-s 1048576 -n 20 -c -e", 41_943_040, 20),
        ("-r 1 -n 50", 409_600, 50),
        ("-n 1 -g 1 -l 3 -m 4096 -s 0x2000", 16_384, 1),
    ] {
        let shape = format!(
            "  local address:  LID #, QPN #, PSN #, GID #\n  remote address: LID #, QPN #, PSN #, GID #\n\
             {bytes} bytes in # seconds = # Mbit/sec\n{iters} iters in # seconds = # usec/iter\n"
        );
        for ended in both(flags) {
            assert_eq!(ended.shape(), shape, "{flags}");
        }
    }
}

#[test]
fn json_has_the_figures_and_both_addresses() {
    for ended in both("--json -n 10") {
        assert!(ended.status.success(), "{ended:?}");
        let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(report["bytes"], 81_920);
        assert_eq!(report["invalid_pages"], serde_json::json!([]));
        assert!(report["usec_per_iter"].as_f64().unwrap() > 0.0);
        assert_ne!(report["local"]["qpn"], report["remote"]["qpn"]);
    }
}

#[test]
fn a_client_without_c_is_found_by_a_server_with_c() {
    let port = free_port();
    let server = pingpong(&format!("--soft -p {port} -c -s 8192"));
    assert!(pingpong(&format!("--soft -p {port} -s 8192 127.0.0.1")).finish().status.success());
    let server = server.finish();
    server.failed_with(&["-c found wrong bytes in 2 of the pages", "client must have -c"]);
    assert!(
        server.stdout.ends_with("usec/iter\ninvalid data in page 0\ninvalid data in page 1\n"),
        "{server:?}"
    );
}

#[test]
fn a_message_that_arrives_before_the_first_request_for_an_event_is_found() {
    let port = free_port();
    let mut server = pingpong(&format!("--soft -p {port} -e -n 1 --timeout 10"));
    await_listening(&mut server, port);
    let mut peer = Peer::new(port, 4096).hear();
    peer.send(4096);
    peer.await_completions(1);
    peer.say_done();
    peer.await_completions(1);
    server.finish().shape();
}
