//! The oldest toolchain that the manifest promises.

use anyhow::{Context, Result};

use super::Done;
use crate::cargo::{self, cargo, check};
use crate::workspace;

/// Builds the libraries with that toolchain where rustup has it; CI installs it.
pub fn run() -> Result<Done> {
    let metadata = cargo::metadata("rdma-core/Cargo.toml")?;
    let packages = metadata["packages"].as_array().context("no packages in cargo's metadata")?;
    let version = packages.iter().find(|package| package["name"] == "rdma-core");
    let version =
        version.and_then(|package| package["rust_version"].as_str()).context("no rust-version is stated")?;
    let named = |toolchain: &String| {
        let rest = toolchain.strip_prefix(version);
        rest.is_some_and(|rest| rest.starts_with(['.', '-']))
    };
    let mut found = cargo::toolchains().into_iter().find(named);
    if found.is_none() && workspace::in_ci() && cargo::install_toolchain(version).is_ok() {
        found = cargo::toolchains().into_iter().find(named);
    }
    let Some(toolchain) = found else {
        return Ok(Done::Partly(format!(
            "no toolchain {version} here, so only clippy's `incompatible_msrv` held it; \
             run `rustup toolchain install {version}`"
        )));
    };
    let plus = format!("+{toolchain}");
    let target = workspace::target()?.join("msrv");
    let args = [plus.as_str(), "check", "--lib", "-p", "rdma-core", "-p", "rdma-collective"];
    check(cargo(&args)?.env("CARGO_TARGET_DIR", target))?;
    Ok(Done::Whole)
}
