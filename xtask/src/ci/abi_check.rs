//! The crate that holds our declarations of libibverbs against the C headers, with what it needs to build.

use anyhow::{Result, anyhow, bail};

use super::{Done, headers};
use crate::cargo::{cargo, check};
use crate::{packages, workspace};

const MANIFEST: &str = "rdma-core/abi-check/Cargo.toml";
/// rdma-sys' bindgen panics with a libclang newer than 14.
const PACKAGES: [&str; 4] = ["libibverbs-dev", "librdmacm-dev", "libclang-14-dev", "pkg-config"];
const LIBCLANG: &str = "/usr/lib/llvm-14/lib";

/// Installs the headers where that is allowed, and runs the crate, with the headers of several releases too.
pub fn run() -> Result<Done> {
    if !workspace::root()?.join(MANIFEST).exists() {
        bail!("{MANIFEST} is not there");
    }
    let log = workspace::target()?.join("apt.log");
    packages::ensure(&PACKAGES, &log)?.map_err(|reason| anyhow!(reason))?;
    let mut command = cargo(&["run", "--quiet", "--manifest-path", MANIFEST])?;
    command.env("LIBCLANG_PATH", LIBCLANG);
    let done = match headers::of_all_releases() {
        Ok(others) => {
            let folders = others.iter().map(|it| format!("{}={}", it.version, it.include.display()));
            command.env("ABI_CHECK_HEADERS", folders.collect::<Vec<_>>().join(":"));
            Done::Whole
        }
        Err(error) if workspace::in_ci() => return Err(error),
        Err(error) => Done::Partly(format!("the installed headers alone: {error:#}")),
    };
    check(&mut command)?;
    Ok(done)
}
