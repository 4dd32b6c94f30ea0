//! The crate that holds our declarations of libibverbs against the C headers, with what it needs to build.

use anyhow::{Result, anyhow, bail};

use crate::cargo::{cargo, check};
use crate::{packages, workspace};

const MANIFEST: &str = "rdma-core/abi-check/Cargo.toml";
/// rdma-sys' bindgen panics with a libclang newer than 14.
const PACKAGES: [&str; 4] = ["libibverbs-dev", "librdmacm-dev", "libclang-14-dev", "pkg-config"];
const LIBCLANG: &str = "/usr/lib/llvm-14/lib";

/// Installs the headers where that is allowed, and runs the crate.
pub fn run() -> Result<()> {
    if !workspace::root()?.join(MANIFEST).exists() {
        bail!("{MANIFEST} is not there");
    }
    let log = workspace::target()?.join("apt.log");
    packages::ensure(&PACKAGES, &log)?.map_err(|reason| anyhow!(reason))?;
    check(cargo(&["run", "--quiet", "--manifest-path", MANIFEST])?.env("LIBCLANG_PATH", LIBCLANG))
}
