//! The cases in which the network between two hosts loses, delays and reorders packets, goes away and comes back, or
//! loses a host. Each ends with every byte right, or with an error that says who was lost, before its deadline.

use super::cases::{Case, PLAIN, Share, Sides};
use super::network::Network;

const ALLREDUCE: Case = Case {
    hosts: &[2],
    server: "env RANK=0 WORLD_SIZE=2 MASTER_ADDR={self} MASTER_PORT={port} \
        {bin:allreduce} --device {device} -w 0 -T 60",
    client: Some(
        "env RANK=1 WORLD_SIZE=2 MASTER_ADDR={peer} MASTER_PORT={port} \
        {bin:allreduce} --device {device} -w 0 -T 60",
    ),
    work: "-b 256K -e 4M -f 4 -n 2",
    names_device: Sides::Server,
    seconds: LIMIT,
    ..PLAIN
};

const KVCACHE: Case = Case {
    hosts: &[2],
    server: "env RDMA_JOB_TOKEN=5c9f0d1e6a7b48239c0d1e2f3a4b5c6d \
        {bin:kvcache_transfer} --role decode --listen {self}:{port} --device {device} --checksums --prompt 16 -T 60",
    client: Some(
        "env RDMA_JOB_TOKEN=5c9f0d1e6a7b48239c0d1e2f3a4b5c6d \
        {bin:kvcache_transfer} --role prefill --peer {peer}:{port} --device {device} --checksums --prompt 16 -T 60",
    ),
    work: "--requests 6",
    seconds: LIMIT,
    ..PLAIN
};
const PULLED: Case = Case { work: "--requests 6 --pull", ..KVCACHE };
const STREAMED: Case = Case { work: "--requests 6 --stream", ..KVCACHE };

/// With work for longer than a link is down.
const LONG_ALLREDUCE: Case = Case { work: "-b 1M -e 1M -n 40", errors: SENT_AGAIN, ..ALLREDUCE };
const LONG_KVCACHE: Case = Case { work: "--requests 25", errors: SENT_AGAIN, ..KVCACHE };
const LONG_PULLED: Case = Case { work: "--requests 25 --pull", errors: SENT_AGAIN, ..KVCACHE };
const LONG_STREAMED: Case = Case { work: "--requests 25 --stream", errors: SENT_AGAIN, ..KVCACHE };

/// With work for ever, and between two operations no word with the store, which a lost host holds up until the
/// deadline.
const ENDLESS_ALLREDUCE: Case = Case {
    work: "-b 1M -e 1M -n 100000",
    network: Network::PeerKilled { after_packets: 2000 },
    errors: OTHER_RANK,
    ..ALLREDUCE
};
const ENDLESS_KVCACHE: Case = Case {
    work: "--requests 10000",
    network: Network::PeerKilled { after_packets: 2000 },
    errors: OTHER_SIDE,
    ..KVCACHE
};
const ENDLESS_PULLED: Case = Case { work: "--requests 10000 --pull", ..ENDLESS_KVCACHE };
const ENDLESS_STREAMED: Case = Case { work: "--requests 10000 --stream", ..ENDLESS_KVCACHE };

/// A rank says that the other is lost, or the store that rank 0 serves, or that it is the lost one itself.
const OTHER_RANK: Option<[&str; 2]> =
    Some(["rank 1|the other ranks went on", "rank 0|{peer}|the other ranks went on"]);
/// A side says that the other is lost or late, or that this has given up first.
const OTHER_SIDE: Option<[&str; 2]> = Some(["{peer}|the peer gave up", "{peer}|the peer gave up"]);

/// Where packets are lost, for a time or all the time, the kernel now and then ends the connection: one side is told
/// that a good request was invalid, the other that it was flushed (docs/platform.md). Nothing else excuses an error
/// there.
const SENT_AGAIN: Option<[&str; 2]> = Some(["REM_INV_REQ_ERR|WR_FLUSH_ERR"; 2]);

/// A collective's program where packets are lost and overtake each other.
macro_rules! jittered {
    ($program:literal) => {
        soak(Case {
            name: concat!($program, ", 1 % of packets lost and 5 ms of jitter"),
            server: concat!(
                "env RANK=0 WORLD_SIZE=2 MASTER_ADDR={self} MASTER_PORT={port} {bin:",
                $program,
                "} --device {device} -w 0 -T 60"
            ),
            client: Some(concat!(
                "env RANK=1 WORLD_SIZE=2 MASTER_ADDR={peer} MASTER_PORT={port} {bin:",
                $program,
                "} --device {device} -w 0 -T 60"
            )),
            work: "-b 64 -e 256K -f 16 -n 3",
            network: Network::Jitter { per_mille: 10, mean_ms: 5 },
            errors: SENT_AGAIN,
            ..ALLREDUCE
        })
    };
}

/// Cases of CI first, then those that a soak has besides, then those that cost a host.
pub const CASES: &[Case] = &[
    Case { name: "allreduce, 0.5 % of packets lost", network: loss(5), errors: SENT_AGAIN, ..ALLREDUCE },
    Case { name: "kvcache_transfer, 0.5 % of packets lost", network: loss(5), errors: SENT_AGAIN, ..KVCACHE },
    Case {
        name: "kvcache_transfer, pulled, 0.5 % of packets lost",
        network: loss(5),
        errors: SENT_AGAIN,
        ..PULLED
    },
    Case { name: "allreduce, wire cut for 1 s", network: cut(1), ..LONG_ALLREDUCE },
    Case { name: "kvcache_transfer, by layers, wire cut for 1 s", network: cut(1), ..LONG_STREAMED },
    Case { name: "allreduce, link down for 5 s", network: DOWN, errors: OTHER_RANK, ..LONG_ALLREDUCE },
    Case { name: "kvcache_transfer, link down for 5 s", network: DOWN, errors: OTHER_SIDE, ..LONG_KVCACHE },
    soak(Case {
        name: "kvcache_transfer, by layers, 0.5 % of packets lost",
        network: loss(5),
        errors: SENT_AGAIN,
        ..STREAMED
    }),
    soak(Case { name: "allreduce, 5 % of packets lost", network: loss(50), errors: SENT_AGAIN, ..ALLREDUCE }),
    soak(Case {
        name: "kvcache_transfer, 5 % of packets lost",
        network: loss(50),
        errors: SENT_AGAIN,
        ..KVCACHE
    }),
    soak(Case {
        name: "kvcache_transfer, pulled, 5 % of packets lost",
        network: loss(50),
        errors: SENT_AGAIN,
        ..PULLED
    }),
    soak(Case {
        name: "kvcache_transfer, by layers, 5 % of packets lost",
        network: loss(50),
        errors: SENT_AGAIN,
        ..STREAMED
    }),
    soak(Case { name: "allreduce, packets late and out of order", network: LATE, ..ALLREDUCE }),
    soak(Case { name: "kvcache_transfer, packets late and out of order", network: LATE, ..KVCACHE }),
    soak(Case { name: "kvcache_transfer, pulled, packets late and out of order", network: LATE, ..PULLED }),
    soak(Case {
        name: "kvcache_transfer, by layers, packets late and out of order",
        network: LATE,
        ..STREAMED
    }),
    soak(Case { name: "kvcache_transfer, wire cut for 1 s", network: cut(1), ..LONG_KVCACHE }),
    soak(Case { name: "kvcache_transfer, pulled, wire cut for 1 s", network: cut(1), ..LONG_PULLED }),
    soak(Case { name: "allreduce, wire cut for 2 s", network: cut(2), ..LONG_ALLREDUCE }),
    soak(Case { name: "kvcache_transfer, wire cut for 2 s", network: cut(2), ..LONG_KVCACHE }),
    soak(Case { name: "kvcache_transfer, pulled, wire cut for 2 s", network: cut(2), ..LONG_PULLED }),
    soak(Case { name: "kvcache_transfer, by layers, wire cut for 2 s", network: cut(2), ..LONG_STREAMED }),
    soak(Case {
        name: "kvcache_transfer, pulled, link down for 5 s",
        network: DOWN,
        errors: OTHER_SIDE,
        ..LONG_PULLED
    }),
    soak(Case {
        name: "kvcache_transfer, by layers, link down for 5 s",
        network: DOWN,
        errors: OTHER_SIDE,
        ..LONG_STREAMED
    }),
    jittered!("allreduce"),
    jittered!("allgather"),
    jittered!("reducescatter"),
    jittered!("broadcast"),
    jittered!("reduce"),
    jittered!("alltoall"),
    jittered!("gather"),
    jittered!("scatter"),
    jittered!("sendrecv"),
    Case { name: "allreduce, rank 1's machine killed", ..ENDLESS_ALLREDUCE },
    Case { name: "allreduce, rank 0's machine killed", swapped: true, ..ENDLESS_ALLREDUCE },
    Case { name: "kvcache_transfer, prefill's machine killed", ..ENDLESS_KVCACHE },
    Case { name: "kvcache_transfer, pulled, decode's machine killed", swapped: true, ..ENDLESS_PULLED },
    soak(Case { name: "kvcache_transfer, pulled, prefill's machine killed", ..ENDLESS_PULLED }),
    soak(Case { name: "kvcache_transfer, decode's machine killed", swapped: true, ..ENDLESS_KVCACHE }),
    soak(Case { name: "kvcache_transfer, by layers, prefill's machine killed", ..ENDLESS_STREAMED }),
    soak(Case {
        name: "kvcache_transfer, by layers, decode's machine killed",
        swapped: true,
        ..ENDLESS_STREAMED
    }),
];

const LATE: Network = Network::Late { delay_ms: 20, reordered_per_mille: 2 };
const DOWN: Network = Network::LinkDown { after_packets: 500, seconds: 5 };

/// Twice what the slowest of them takes under emulation on a busy machine.
const LIMIT: u64 = 150;

const fn loss(per_mille: u32) -> Network {
    Network::Loss { per_mille }
}

/// For less than peers may be silent: both sides go on.
const fn cut(seconds: u64) -> Network {
    Network::Cut { after_packets: 500, seconds }
}

const fn soak(case: Case) -> Case {
    Case { share: Share::Soak, ..case }
}
