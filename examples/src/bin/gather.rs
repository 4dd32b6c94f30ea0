//! Gather among processes, after nccl-tests' `gather_perf`.

use examples::collectives::{Collective, main as run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(Collective::Gather)
}
