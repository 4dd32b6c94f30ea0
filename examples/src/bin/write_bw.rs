//! Bandwidth of RDMA write between two processes, after perftest's `ib_write_bw`.

use examples::perftest::{args::WriteBw, main as run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run::<WriteBw>()
}
