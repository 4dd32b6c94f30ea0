//! Cases of `rdma-tools`: beside the C programs that it is the twin of.

use super::cases::{Case, PLAIN, Share, Sides};

/// The beginning of the name of each case here.
pub const PREFIX: &str = "tools: ";

/// Cases of the suite.
pub const CASES: &[Case] = &[
    Case {
        name: "tools: devices, devinfo and stat beside the C programs",
        hosts: &[1],
        server: "{test:tables} on_a_device --ignored --nocapture",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "tools: pingpong beside ibv_rc_pingpong",
        hosts: &[1],
        server: "{test:pingpong} on_a_device --ignored --nocapture --test-threads=1",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "tools: pingpong beside ibv_rc_pingpong, all flags",
        hosts: &[1],
        server: "env SOAK=full {test:pingpong} on_a_device --ignored --nocapture --test-threads=1",
        names_device: Sides::Server,
        share: Share::Tools,
        seconds: 900,
        ..PLAIN
    },
    Case { share: Share::Regular, ..to_the_c_program("tools: pingpong to ibv_rc_pingpong", "-n 100 -e") },
    to_the_c_program("tools: pingpong to ibv_rc_pingpong, a byte", "-s 1 -n 100"),
    to_the_c_program("tools: pingpong to ibv_rc_pingpong, a MiB", "-s 1048576 -n 10 -c"),
    from_the_c_program("tools: pingpong from ibv_rc_pingpong, events", "-n 100 -e"),
    from_the_c_program("tools: pingpong from ibv_rc_pingpong, a byte", "-s 1 -n 100"),
    from_the_c_program("tools: pingpong from ibv_rc_pingpong, a MiB", "-s 1048576 -n 10 -c"),
    // Last, because these take longest where the machines are emulated. With events, because an emulated processor
    // that polls keeps the one that carries its packets waiting.
    to_the_c_program("tools: pingpong to ibv_rc_pingpong, many", "-n 10000 -e"),
    from_the_c_program("tools: pingpong from ibv_rc_pingpong, many", "-n 10000 -e"),
];

/// Two hosts, with the C program as the server.
const fn to_the_c_program(name: &'static str, work: &'static str) -> Case {
    Case {
        name,
        hosts: &[2],
        server: "ibv_rc_pingpong -d {device} -g 1 -p {port}",
        client: Some("{bin:rdma-tools} pingpong -d {device} -g 1 -p {port} {peer}"),
        work,
        // The text of both programs has no name, and -d takes that device or fails.
        names_device: Sides::Neither,
        share: Share::Tools,
        seconds: 600,
        ..PLAIN
    }
}

/// Two hosts, with the C program as the client.
const fn from_the_c_program(name: &'static str, work: &'static str) -> Case {
    Case {
        server: "{bin:rdma-tools} pingpong -d {device} -g 1 -p {port}",
        client: Some("ibv_rc_pingpong -d {device} -g 1 -p {port} {peer}"),
        ..to_the_c_program(name, work)
    }
}
