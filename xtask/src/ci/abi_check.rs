//! The crate that holds our declarations of libibverbs against the C headers, with what it needs to build.

use anyhow::{Result, anyhow, bail};

use crate::cargo::{cargo, check};
use crate::{packages, workspace};

const MANIFEST: &str = "rdma-core/abi-check/Cargo.toml";
const PACKAGES: [&str; 4] = ["libibverbs-dev", "librdmacm-dev", "libclang-dev", "pkg-config"];

/// Installs the headers where that is allowed, and runs the crate.
pub fn run() -> Result<()> {
    if !workspace::root()?.join(MANIFEST).exists() {
        bail!("{MANIFEST} is not there");
    }
    let log = workspace::target()?.join("apt.log");
    packages::ensure(&PACKAGES, &log)?.map_err(|reason| anyhow!(reason))?;
    check(&mut cargo(&["run", "--quiet", "--manifest-path", MANIFEST])?)
}
