//! The bench `nodes` with small requests: each row is measured, whether or not it holds.

use std::process::Command;

#[test]
fn each_row_is_measured_between_processes() {
    let bench =
        Command::new(env!("CARGO_BIN_EXE_nodes")).arg("--quick").env_remove("PEERS").output().unwrap();
    let said = String::from_utf8_lossy(&bench.stdout);
    // NIXL and Mooncake are not there, so the status is that of a row that does not hold.
    assert_eq!(bench.status.code(), Some(1), "{said}{}", String::from_utf8_lossy(&bench.stderr));
    // Two lines are the head.
    assert_eq!((said.lines().count(), said.matches("| not measured |").count()), (2 + 20, 2), "{said}");
}
