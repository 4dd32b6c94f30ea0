//! Bandwidth of send and receive between two processes, after perftest's `ib_send_bw`.

use examples::perftest::{args::SendBw, main as run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run::<SendBw>()
}
