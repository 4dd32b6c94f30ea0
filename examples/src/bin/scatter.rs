//! Scatter among processes, after nccl-tests' `scatter_perf`.

use examples::collectives::{Collective, main as run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(Collective::Scatter)
}
