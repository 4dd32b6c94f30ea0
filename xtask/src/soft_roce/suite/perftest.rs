//! Cases of perftest and of its twins.

use super::cases::{Case, PLAIN, Share};

// Cases that CI has on one host, and a soak between two as well.
const IB_WRITE_BW: Case = Case {
    name: "ib_write_bw",
    hosts: &[1],
    server: "ib_write_bw -d {device} -x 1 -s 65536 -n 200 -F",
    client: Some("ib_write_bw -d {device} -x 1 -s 65536 -n 200 -F {peer}"),
    ..PLAIN
};
const WRITE_LAT: Case = Case {
    name: "write_lat",
    hosts: &[1],
    server: "{bin:write_lat} -d {device} -x 1 -n 200 -F",
    client: Some("{bin:write_lat} -d {device} -x 1 -n 200 -F {peer}"),
    ..PLAIN
};
const READ_BW: Case = Case {
    name: "read_bw",
    hosts: &[1],
    server: "{bin:read_bw} -d {device} -x 1 -s 65536 -n 200 -F",
    client: Some("{bin:read_bw} -d {device} -x 1 -s 65536 -n 200 -F {peer}"),
    ..PLAIN
};
const READ_LAT: Case = Case {
    name: "read_lat",
    hosts: &[1],
    server: "{bin:read_lat} -d {device} -x 1 -n 200 -F",
    client: Some("{bin:read_lat} -d {device} -x 1 -n 200 -F {peer}"),
    ..PLAIN
};
const SEND_BW: Case = Case {
    name: "send_bw",
    hosts: &[1],
    server: "{bin:send_bw} -d {device} -x 1 -s 65536 -n 200 -F",
    client: Some("{bin:send_bw} -d {device} -x 1 -s 65536 -n 200 -F {peer}"),
    ..PLAIN
};

/// Perftest itself shows that the device is in order. Between two hosts CI has a twin that writes and one that sends,
/// since the others differ from these in what the one host has covered; a soak has all.
pub const CASES: &[Case] = &[
    IB_WRITE_BW,
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
    WRITE_LAT,
    READ_BW,
    READ_LAT,
    SEND_BW,
    Case {
        name: "send_lat",
        hosts: &[1, 2],
        server: "{bin:send_lat} -d {device} -x 1 -n 200 -F",
        client: Some("{bin:send_lat} -d {device} -x 1 -n 200 -F {peer}"),
        ..PLAIN
    },
    between_two(IB_WRITE_BW),
    between_two(WRITE_LAT),
    between_two(READ_BW),
    between_two(READ_LAT),
    between_two(SEND_BW),
];

/// The case of one host as a soak has it between two.
const fn between_two(case: Case) -> Case {
    Case { hosts: &[2], share: Share::Soak, ..case }
}
