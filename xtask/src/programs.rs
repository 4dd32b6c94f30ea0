//! The programs that the README shows, each with the arguments that it shows: they run on any machine, on the
//! software device, and end with status 0.

/// What follows `cargo run --release --bin`.
pub const README: &[&str] = &["allreduce", "kvcache_transfer"];
