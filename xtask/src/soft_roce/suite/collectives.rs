//! Cases of the collectives' programs.

use super::cases::{Case, PLAIN, Sides};

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
        ..PLAIN
    },
    Case {
        name: "allreduce, every type and reduction",
        hosts: &[1],
        server: "{bin:allreduce} --device {device} --ranks 2 -b 16K -e 16K -n 1 -w 0 -m 2 -u 3 -d all -o all",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "allreduce, two queue pairs to each neighbour",
        hosts: &[1],
        server: "env NCCL_IB_QPS_PER_CONNECTION=2 {bin:allreduce} --device {device} --ranks 3 -b 64K -e 1M -f 4 -n 3",
        names_device: Sides::Server,
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
    Case {
        name: "allgather, three ranks",
        hosts: &[1],
        server: "{bin:allgather} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "reducescatter, three ranks",
        hosts: &[1],
        server: "{bin:reducescatter} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "broadcast, three ranks",
        hosts: &[1],
        server: "{bin:broadcast} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3 -r all",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "reduce, three ranks",
        hosts: &[1],
        server: "{bin:reduce} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3 -r all",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "alltoall, three ranks",
        hosts: &[1],
        server: "{bin:alltoall} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "gather, three ranks",
        hosts: &[1],
        server: "{bin:gather} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3 -r all",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "scatter, three ranks",
        hosts: &[1],
        server: "{bin:scatter} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3 -r all",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "sendrecv, three ranks",
        hosts: &[1],
        server: "{bin:sendrecv} --device {device} --ranks 3 -b 16K -e 1M -f 8 -n 3 -m 2 -u 3",
        names_device: Sides::Server,
        ..PLAIN
    },
];
