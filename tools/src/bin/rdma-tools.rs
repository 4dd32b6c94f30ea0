//! `rdma-tools`, which is also `ibv_devices`, `ibv_devinfo`, `ibstat`, `show_gids`, `ibdev2netdev` and
//! `ibv_rc_pingpong` under these names.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::main()
}
