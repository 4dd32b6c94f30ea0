//! All-reduce among processes, after nccl-tests' `all_reduce_perf`.

use examples::collectives::{Collective, main as run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(Collective::AllReduce)
}
