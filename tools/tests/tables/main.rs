//! `rdma-tools` on trees of files: golden text on trees of mlx5, trees that are damaged, and on a device beside the C
//! programs. On a device, too, troubles that are real.

mod bad;
mod doctor;
mod failures;
#[path = "../common/free_port.rs"]
mod free_port;
mod mlx5;
mod on_device;
mod real;
mod run;
mod tree;
