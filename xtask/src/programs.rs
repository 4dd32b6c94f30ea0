//! The workspace's programs: which the README shows, and how all are built.

/// What follows `cargo run --release --bin` there: they run on any machine, on the software device, and end with
/// status 0.
pub const README: &[&str] = &["allreduce", "kvcache_transfer"];

/// How all programs are built. Always with this choice of packages: with another, cargo unites features differently
/// and builds the dependencies again.
pub const BUILD: &[&str] = &["build", "--release", "--workspace", "--exclude", "xtask", "--bins"];
