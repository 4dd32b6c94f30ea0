//! `rdma-tools pingpong` as people run it: over the software device, with peers that do wrong, and on a device beside
//! `ibv_rc_pingpong`.

mod flags;
mod on_device;
mod peer;
mod run;
mod soft;
mod wrong;
