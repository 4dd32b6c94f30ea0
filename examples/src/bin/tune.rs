//! Measures which way each collective goes fastest here, and writes the table that says so.

use std::process::ExitCode;

fn main() -> ExitCode {
    examples::collectives::tune::main()
}
