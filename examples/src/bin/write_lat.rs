//! Latency of RDMA write between two processes, after perftest's `ib_write_lat`.

use examples::perftest::{args::WriteLat, main as run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run::<WriteLat>()
}
