//! cargo-deny over the dependencies: `deny.toml` says what is allowed.

use std::process::Command;

use anyhow::{Result, bail};

use super::Done;
use crate::cargo::{LIMIT, cargo, check};
use crate::process;

/// Whether cargo-deny is there. Building it takes minutes, so only the step's own name does that.
pub fn is_installed() -> bool {
    process::answer("cargo-deny", &["--version"]).is_some()
}

/// Checks licences, bans and sources, and advisories where their database can be reached.
pub fn run() -> Result<Done> {
    if !is_installed() {
        println!("building cargo-deny, once");
        check(&mut cargo(&["install", "--locked", "cargo-deny"])?)?;
    }
    check(&mut cargo(&["deny", "check", "licenses", "bans", "sources"])?)?;
    let fetched = process::run(cargo(&["deny", "fetch", "db"])?.stderr(std::process::Stdio::null()), LIMIT)?;
    if !fetched.success() {
        return Ok(Done::Partly("the database of advisories could not be reached".to_owned()));
    }
    let mut advisories: Command = cargo(&["deny", "check", "advisories"])?;
    if !process::run(&mut advisories, LIMIT)?.success() {
        bail!("a dependency has an advisory");
    }
    Ok(Done::Whole)
}
