//! Bandwidth of RDMA read between two processes, after perftest's `ib_read_bw`.

use examples::perftest::{args::ReadBw, main as run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run::<ReadBw>()
}
