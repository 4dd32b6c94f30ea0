//! `cargo xtask`: the project's own checks.

fn main() {}
