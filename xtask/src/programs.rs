//! The workspace's programs: which the README shows, and how all are built.

/// Programs that the README starts by `cargo run --release --bin`. They run on any machine, on the software device, and
/// end with status 0.
pub const README: &[&str] = &["allreduce", "kvcache_transfer"];

/// How all programs are built to be fast. Always with this choice of packages: with another, cargo unites features
/// differently and builds the dependencies again.
pub const BUILD: &[&str] =
    &["build", "--release", "--workspace", "--exclude=xtask", "--exclude=servers", "--bins"];

/// How all tests are built: without the test harness of each program, which only `kvcache_transfer` has tests for. The
/// tests of `examples` and `conformance` start their programs, so cargo builds these as well.
pub const TESTS: &[&str] = &[
    "test",
    "--no-run",
    "--workspace",
    "--exclude=servers",
    "--lib",
    "--test=*",
    "--bin=kvcache_transfer",
    "--bin=xtask",
];

/// How the tests of the servers are built: apart from all others, because they turn features of the libraries on that
/// the others are tested without.
pub const TESTS_OF_SERVERS: &[&str] =
    &["test", "--no-run", "--package=servers", "--all-features", "--lib", "--bins", "--test=*"];

/// How `mini_server` is built to be fast.
pub const SERVERS: &[&str] = &["build", "--release", "--package=servers", "--bins"];

/// How `mini_server` is built to be asked for its flags alone: with a test, as [`BUILD_FOR_TESTS`].
pub const SERVERS_FOR_DOCS: &[&str] =
    &["build", "--package=servers", "--all-features", "--bins", "--test=directory"];

/// How all programs are built as the tests have them. A test has its part in it: without one, cargo chooses other
/// features, and builds all dependencies again.
pub const BUILD_FOR_TESTS: &[&str] =
    &["build", "--workspace", "--exclude=servers", "--bins", "--examples", "--test=planted"];
