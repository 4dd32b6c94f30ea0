//! Latency of send and receive between two processes, after perftest's `ib_send_lat`.

use examples::perftest::{args::SendLat, main as run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run::<SendLat>()
}
