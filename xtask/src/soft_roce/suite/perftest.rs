//! Cases of perftest and of its twins.

use super::cases::{Case, PLAIN, Share};

/// Perftest itself shows that the device is in order. Between two hosts CI has a twin that writes and one that sends, since
/// the others differ from these in what the one host has covered; a soak has all.
pub const CASES: &[Case] = &[
    Case {
        name: "ib_write_bw",
        hosts: &[1],
        server: "ib_write_bw -d {device} -x 1 -s 65536 -n 200 -F",
        client: Some("ib_write_bw -d {device} -x 1 -s 65536 -n 200 -F {peer}"),
        ..PLAIN
    },
    Case {
        name: "write_bw",
        hosts: &[1, 2],
        server: "{bin:write_bw} -d {device} -x 1 -s 65536 -n 200 -F",
        client: Some("{bin:write_bw} -d {device} -x 1 -s 65536 -n 200 -F {peer}"),
        ..PLAIN
    },
    Case {
        name: "ib_write_lat",
        hosts: &[1],
        server: "ib_write_lat -d {device} -x 1 -n 200 -F",
        client: Some("ib_write_lat -d {device} -x 1 -n 200 -F {peer}"),
        ..PLAIN
    },
    Case {
        name: "write_lat",
        hosts: &[1],
        server: "{bin:write_lat} -d {device} -x 1 -n 200 -F",
        client: Some("{bin:write_lat} -d {device} -x 1 -n 200 -F {peer}"),
        ..PLAIN
    },
    Case {
        name: "read_bw",
        hosts: &[1],
        server: "{bin:read_bw} -d {device} -x 1 -s 65536 -n 200 -F",
        client: Some("{bin:read_bw} -d {device} -x 1 -s 65536 -n 200 -F {peer}"),
        ..PLAIN
    },
    Case {
        name: "read_lat",
        hosts: &[1],
        server: "{bin:read_lat} -d {device} -x 1 -n 200 -F",
        client: Some("{bin:read_lat} -d {device} -x 1 -n 200 -F {peer}"),
        ..PLAIN
    },
    Case {
        name: "send_bw",
        hosts: &[1],
        server: "{bin:send_bw} -d {device} -x 1 -s 65536 -n 200 -F",
        client: Some("{bin:send_bw} -d {device} -x 1 -s 65536 -n 200 -F {peer}"),
        ..PLAIN
    },
    Case {
        name: "send_lat",
        hosts: &[1, 2],
        server: "{bin:send_lat} -d {device} -x 1 -n 200 -F",
        client: Some("{bin:send_lat} -d {device} -x 1 -n 200 -F {peer}"),
        ..PLAIN
    },
    Case {
        name: "ib_write_bw",
        hosts: &[2],
        server: "ib_write_bw -d {device} -x 1 -s 65536 -n 200 -F",
        client: Some("ib_write_bw -d {device} -x 1 -s 65536 -n 200 -F {peer}"),
        share: Share::Soak,
        ..PLAIN
    },
    Case {
        name: "write_lat",
        hosts: &[2],
        server: "{bin:write_lat} -d {device} -x 1 -n 200 -F",
        client: Some("{bin:write_lat} -d {device} -x 1 -n 200 -F {peer}"),
        share: Share::Soak,
        ..PLAIN
    },
    Case {
        name: "read_bw",
        hosts: &[2],
        server: "{bin:read_bw} -d {device} -x 1 -s 65536 -n 200 -F",
        client: Some("{bin:read_bw} -d {device} -x 1 -s 65536 -n 200 -F {peer}"),
        share: Share::Soak,
        ..PLAIN
    },
    Case {
        name: "read_lat",
        hosts: &[2],
        server: "{bin:read_lat} -d {device} -x 1 -n 200 -F",
        client: Some("{bin:read_lat} -d {device} -x 1 -n 200 -F {peer}"),
        share: Share::Soak,
        ..PLAIN
    },
    Case {
        name: "send_bw",
        hosts: &[2],
        server: "{bin:send_bw} -d {device} -x 1 -s 65536 -n 200 -F",
        client: Some("{bin:send_bw} -d {device} -x 1 -s 65536 -n 200 -F {peer}"),
        share: Share::Soak,
        ..PLAIN
    },
];
