//! Latency of RDMA read between two processes, after perftest's `ib_read_lat`.

use examples::perftest::{args::ReadLat, main as run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run::<ReadLat>()
}
