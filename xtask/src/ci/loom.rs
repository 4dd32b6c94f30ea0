//! Models of the parts that go without a lock: every interleaving of their threads, and every value that a load may
//! see.

use anyhow::Result;

use crate::cargo::{cargo, check};
use crate::workspace;

/// Runs the models, whose names begin with `loom_`, in a build folder of their own.
pub fn run() -> Result<()> {
    let mut models = cargo(&["test", "-p", "rdma-core", "-p", "rdma-collective", "--lib", "loom_"])?;
    models.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", workspace::target()?.join("loom"));
    // Building takes far longer than the models do.
    models.env("CARGO_PROFILE_TEST_OPT_LEVEL", "0").env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    check(&mut models)
}
