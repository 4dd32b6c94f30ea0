//! Runs cargo as a person would have: without what the running `cargo xtask` put into the environment, and with
//! the toolchain that a step asks for.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{process, workspace};

/// The longest that one call of cargo may take, a cold build on a small machine included.
pub const LIMIT: Duration = Duration::from_secs(1500);

/// The nightly whose sanitizers, coverage and rustdoc JSON the steps were written for.
const NIGHTLY_DATED: &str = "nightly-2026-05-15";

/// `cargo ARGS` in the workspace's root.
pub fn cargo(args: &[&str]) -> Result<Command> {
    let mut command = Command::new("cargo");
    command.args(args).current_dir(workspace::root()?).stdin(Stdio::null());
    clean(&mut command);
    Ok(command)
}

/// Takes out of the environment what the running `cargo xtask` has put in.
fn clean(command: &mut Command) {
    for name in ["CARGO", "CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"]
    {
        command.env_remove(name);
    }
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_")) {
        command.env_remove(name);
    }
}

/// `cargo +nightly ARGS`; the error says how to get a nightly.
pub fn nightly(args: &[&str]) -> Result<Command> {
    let installed = toolchains();
    let find = |name: &str| installed.iter().any(|toolchain| toolchain.starts_with(name));
    let toolchain = if find(NIGHTLY_DATED) {
        NIGHTLY_DATED
    } else if find("nightly-x86_64") || find("nightly-aarch64") {
        "nightly"
    } else {
        install_toolchain(NIGHTLY_DATED)?;
        NIGHTLY_DATED
    };
    let plus = format!("+{toolchain}");
    let words: Vec<&str> = [plus.as_str()].into_iter().chain(args.iter().copied()).collect();
    cargo(&words)
}

/// Runs `command`, and fails when it does.
pub fn check(command: &mut Command) -> Result<()> {
    let status = process::run(command, LIMIT)?;
    if !status.success() {
        bail!("`cargo {}` failed", words(command));
    }
    Ok(())
}

/// The toolchains that rustup has, by their full names.
pub fn toolchains() -> Vec<String> {
    let list = process::answer("rustup", &["toolchain", "list"]).unwrap_or_default();
    list.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// A program or test that cargo built.
#[derive(Debug, Clone)]
pub struct Executable {
    /// The name of the executable's target.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// The folder of its package.
    pub package: PathBuf,
    /// Whether it is a test harness.
    pub is_test: bool,
}

impl Executable {
    /// The package and the target, for people.
    pub fn title(&self) -> String {
        let package = self.package.file_name().unwrap_or_default().to_string_lossy();
        if package.replace('-', "_") == self.name {
            self.name.clone()
        } else {
            format!("{package} {}", self.name)
        }
    }

    /// Runs it, in the place and the environment in which cargo does.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.package).stdin(Stdio::null());
        clean(&mut command);
        command.env("CARGO_MANIFEST_DIR", &self.package);
        command
    }
}

/// Runs a `cargo build` or `cargo test --no-run`, and lists the executables that it made.
pub fn build(command: &mut Command) -> Result<Vec<Executable>> {
    command.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
    let name = words(command);
    let output = command.spawn().and_then(|child| child.wait_with_output()).context("cannot run cargo")?;
    if !output.status.success() {
        bail!("`cargo {name}` failed");
    }
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(messages.lines().filter_map(|line| executable(&serde_json::from_str(line).ok()?)).collect())
}

/// The answer of `cargo metadata` for the manifest at `path` in the workspace.
pub fn metadata(path: &str) -> Result<Value> {
    let args = ["metadata", "--format-version=1", "--no-deps", "--manifest-path", path];
    let output = cargo(&args)?.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("`cargo metadata` of {path} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("cargo's metadata is not JSON")
}

fn executable(message: &Value) -> Option<Executable> {
    let path = message["executable"].as_str()?;
    Some(Executable {
        name: message["target"]["name"].as_str()?.to_owned(),
        path: PathBuf::from(path),
        package: Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf(),
        is_test: message["profile"]["test"].as_bool()?,
    })
}

/// Installs a toolchain by rustup; the error says how to do it by hand.
pub fn install_toolchain(name: &str) -> Result<()> {
    println!("installing the toolchain {name}");
    let mut rustup = Command::new("rustup");
    rustup.args(["toolchain", "install", "--profile", "minimal", name]);
    match process::run(&mut rustup, LIMIT) {
        Ok(status) if status.success() => Ok(()),
        _ => bail!("this needs another toolchain: run `rustup toolchain install {name}`"),
    }
}

fn words(command: &Command) -> String {
    command.get_args().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executable_is_read_from_cargos_message() {
        let message = serde_json::json!({
            "target": { "name": "allreduce" }, "profile": { "test": false }, "executable": "out/allreduce",
            "manifest_path": "/here/examples/Cargo.toml"
        });
        let found = executable(&message).unwrap();
        assert_eq!((found.title(), found.is_test), ("examples allreduce".to_owned(), false));
        assert_eq!(
            (found.path, found.package),
            (PathBuf::from("out/allreduce"), PathBuf::from("/here/examples"))
        );
    }

    #[test]
    fn a_library_is_no_executable() {
        let message = serde_json::json!({ "target": { "name": "rdma_core" }, "executable": null });
        assert!(executable(&message).is_none());
    }
}
