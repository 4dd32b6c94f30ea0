//! All-to-all among processes, after nccl-tests' `alltoall_perf`.

use examples::collectives::{Collective, main as run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(Collective::AllToAll)
}
