//! Cases of the collectives' programs.

use super::cases::{Case, PLAIN, Share, Sides};

pub const CASES: &[Case] = &[
    Case {
        name: "allreduce, three ranks",
        hosts: &[1],
        server: "{bin:allreduce} --device {device} --ranks 3 -b 64K -e 1M -f 4 -n 3",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "allreduce, in the order of ranks",
        hosts: &[1],
        server: "{bin:allreduce} --device {device} --ranks 3 -b 64K -e 1M -f 16 -n 2 --reproducible",
        names_device: Sides::Server,
        share: Share::Soak,
        ..PLAIN
    },
    Case {
        name: "allreduce, every type and reduction",
        hosts: &[1],
        server: "{bin:allreduce} --device {device} --ranks 2 -b 16K -e 16K -n 1 -w 0 -m 2 -u 3 -d all -o all",
        names_device: Sides::Server,
        share: Share::Soak,
        ..PLAIN
    },
    Case {
        name: "allreduce, two queue pairs to each neighbour",
        hosts: &[1],
        server: "env NCCL_IB_QPS_PER_CONNECTION=2 {bin:allreduce} --device {device} --ranks 3 -b 64K -e 1M -f 4 -n 3",
        names_device: Sides::Server,
        share: Share::Soak,
        ..PLAIN
    },
    Case {
        name: "allreduce, a rank and two queue pairs on each host",
        hosts: &[2],
        server: "env RANK=0 WORLD_SIZE=2 MASTER_ADDR={self} MASTER_PORT=18601 NCCL_IB_QPS_PER_CONNECTION=2 \
            {bin:allreduce} --device {device} -b 64K -e 1M -f 4 -n 3",
        client: Some(
            "env RANK=1 WORLD_SIZE=2 MASTER_ADDR={peer} MASTER_PORT=18601 NCCL_IB_QPS_PER_CONNECTION=2 \
            {bin:allreduce} --device {device} -b 64K -e 1M -f 4 -n 3",
        ),
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "allreduce, a rank on each host",
        hosts: &[2],
        server: "env RANK=0 WORLD_SIZE=2 MASTER_ADDR={self} MASTER_PORT=18600 \
            {bin:allreduce} --device {device} -b 64K -e 256K -f 4 -n 3",
        client: Some(
            "env RANK=1 WORLD_SIZE=2 MASTER_ADDR={peer} MASTER_PORT=18600 \
            {bin:allreduce} --device {device} -b 64K -e 256K -f 4 -n 3",
        ),
        names_device: Sides::Server,
        ..PLAIN
    },
    three_ranks(
        "alltoall, three ranks",
        "{bin:alltoall} --device {device} --ranks 3 -b 128K -e 128K -n 1 -m 1 -u 2",
    ),
    three_ranks(
        "sendrecv, three ranks",
        "{bin:sendrecv} --device {device} --ranks 3 -b 128K -e 128K -n 1 -m 1 -u 2",
    ),
    sizes("allgather, sizes", "{bin:allgather} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3"),
    sizes(
        "reducescatter, sizes",
        "{bin:reducescatter} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3",
    ),
    sizes(
        "broadcast, sizes and roots",
        "{bin:broadcast} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3 -r all",
    ),
    sizes(
        "reduce, sizes and roots",
        "{bin:reduce} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3 -r all",
    ),
    sizes("alltoall, sizes", "{bin:alltoall} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3"),
    sizes(
        "gather, sizes and roots",
        "{bin:gather} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3 -r all",
    ),
    sizes(
        "scatter, sizes and roots",
        "{bin:scatter} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3 -r all",
    ),
    sizes("sendrecv, sizes", "{bin:sendrecv} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3"),
];

/// A collective of one size that the tests of `on_device` lack, which every change has to pass.
const fn three_ranks(name: &'static str, server: &'static str) -> Case {
    Case { name, hosts: &[1], server, names_device: Sides::Server, ..PLAIN }
}

/// A collective of many sizes and with every root, which a soak has besides.
const fn sizes(name: &'static str, server: &'static str) -> Case {
    Case { share: Share::Soak, ..three_ranks(name, server) }
}
