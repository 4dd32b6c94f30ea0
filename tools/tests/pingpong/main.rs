//! `rdma-tools pingpong` as people run it: over the software device, with peers that do wrong, and on a device beside
//! `ibv_rc_pingpong`.

mod flags;
#[path = "../common/free_port.rs"]
mod free_port;
mod on_device;
mod peer;
mod run;
mod soft;
mod wrong;
