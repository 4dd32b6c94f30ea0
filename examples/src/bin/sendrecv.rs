//! Sends around a ring of processes, after nccl-tests' `sendrecv_perf`.

use examples::collectives::{Collective, main as run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(Collective::SendRecv)
}
