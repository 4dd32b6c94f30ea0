//! Reduce-scatter among processes, after nccl-tests' `reduce_scatter_perf`.

use examples::collectives::{Collective, main as run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(Collective::ReduceScatter)
}
