//! The image: the packages that its Dockerfile installs, with all that they need, are unpacked from the release of
//! Debian that it names. `rdma-tools doctor` runs in there, on devices that our documents name, and misses neither
//! libibverbs nor a provider. Docker itself is not needed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::ci::debian::Apt;
use crate::workspace;

/// Devices, each with its driver, that sysfs shows in the image. soft-RoCE has no driver of a bus.
const DEVICES: [(&str, Option<&str>); 2] = [("mlx5_0", Some("mlx5_core")), ("rxe0", None)];
/// Findings that say that something of the packages is missing.
const MISSING: [&str; 3] = ["libibverbs-missing", "provider-missing", "provider-not-configured"];

/// Unpacks the packages of the Dockerfile into the cache, and runs `rdma_tools` there.
pub fn check(dockerfile: &Path, rdma_tools: &Path) -> Result<()> {
    let text =
        fs::read_to_string(dockerfile).with_context(|| format!("cannot read {}", dockerfile.display()))?;
    let (suite, packages) = parse(&text)?;
    let cache = workspace::cache()?.join("image").join(&suite);
    let _turn = workspace::lock("image")?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let root = cache.join(packages.join("+"));
    if !root.exists() {
        Apt::new(&cache, &[&suite])?.unpack_with_dependencies(&packages, &root)?;
        // Where /lib64 is a link, the package that makes it is a part of every image.
        if !root.join("lib64").exists() {
            symlink("usr/lib64", root.join("lib64"))?;
        }
    }
    show_devices(&root)?;
    fs::copy(rdma_tools, root.join("rdma-tools"))?;
    let missing = missing(&root)?;
    ensure!(
        missing.is_empty(),
        "in the image of {} `rdma-tools doctor` says: {}",
        packages.join(" "),
        missing.join(", ")
    );
    // Without the file of a provider doctor says so, or it would say nothing of a package that lacks the file.
    let (configured, aside) = (root.join("etc/libibverbs.d/mlx5.driver"), root.join("aside"));
    fs::rename(&configured, &aside)
        .with_context(|| format!("the packages have no {}", configured.display()))?;
    let without = self::missing(&root);
    fs::rename(&aside, &configured)?;
    ensure!(without? == ["provider-not-configured"], "doctor does not miss {}", configured.display());
    println!("doctor finds libibverbs and its providers in the image, of Debian {suite}");
    Ok(())
}

/// Makes files of sysfs that show the devices.
fn show_devices(root: &Path) -> Result<()> {
    for (device, driver) in DEVICES {
        let folder = root.join("sys/class/infiniband").join(device);
        fs::create_dir_all(folder.join("ports/1"))?;
        let link = folder.join("device/driver");
        if let Some(driver) = driver.filter(|_| fs::symlink_metadata(&link).is_err()) {
            fs::create_dir_all(folder.join("device"))?;
            symlink(format!("../../../../bus/pci/drivers/{driver}"), link)?;
        }
    }
    Ok(())
}

/// Things that the packages lack: as doctor says, and as the loader does.
fn missing(root: &Path) -> Result<Vec<String>> {
    let report = run(root, &["doctor", "--json"])?;
    let report: Value =
        serde_json::from_str(&report).with_context(|| format!("doctor in the image: {report}"))?;
    let findings = report["findings"].as_array().context("doctor has no findings")?.iter();
    let mut missing: Vec<_> = findings
        .filter(|finding| finding["severity"] != "not visible")
        .filter_map(|finding| finding["id"].as_str())
        .filter(|id| MISSING.contains(id))
        .map(str::to_owned)
        .collect();
    // Whoever opens a device loads libibverbs with all that it needs; then the device has no node.
    let opened = run(root, &["pingpong", "--ib-dev", "mlx5_0"])?;
    missing.extend(opened.lines().next().filter(|line| line.contains("does not load")).map(str::to_owned));
    Ok(missing)
}

/// Runs `rdma-tools` in the image; returns the text that it prints.
fn run(root: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.arg("--root").arg(root).arg("/rdma-tools").args(args).stdin(Stdio::null());
    let output = command.output().context("unshare, of util-linux, is missing")?;
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The release of Debian that the last stage begins with, and the packages that each stage installs.
fn parse(text: &str) -> Result<(String, Vec<String>)> {
    let base = text.lines().rfind(|line| line.starts_with("FROM ")).context("the Dockerfile has no FROM")?;
    let suite = base.strip_prefix("FROM debian:").and_then(|base| base.strip_suffix("-slim"));
    let suite = suite.with_context(|| format!("the image is not made of Debian: {base}"))?;
    let lists = text.lines().filter_map(|line| line.split_once("--no-install-recommends "));
    let mut lists: Vec<&str> = lists.map(|(_, list)| list.trim_end_matches('\\').trim()).collect();
    lists.dedup();
    ensure!(lists.len() == 1, "the stages of the Dockerfile install different packages: {lists:?}");
    Ok((suite.to_owned(), lists.concat().split(' ').map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_of_all_stages_are_the_same() {
        let stage = |list: &str| format!("RUN apt-get install --yes --no-install-recommends {list} \\\n");
        let image =
            |list: &str| format!("FROM ray AS ray\n{}FROM debian:trixie-slim\n{}", stage("a b"), stage(list));
        let (suite, packages) = parse(&image("a b")).unwrap();
        assert_eq!((suite.as_str(), packages), ("trixie", vec!["a".to_owned(), "b".to_owned()]));
        assert!(parse(&image("a c")).is_err());
        assert!(parse("FROM ubuntu:22.04").is_err());
    }
}
