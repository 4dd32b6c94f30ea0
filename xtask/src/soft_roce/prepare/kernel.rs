//! A distribution kernel with its modules, unpacked in the cache and never installed: no boot loader, no
//! change to this host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Step;
use crate::{packages, process};

const LIMIT: Duration = Duration::from_secs(600);
/// Debian's name for its current kernel, then Ubuntu's.
const META_PACKAGES: [&str; 2] = ["linux-image-amd64", "linux-image-generic"];
/// The only modules of these folders are for hardware that no guest has.
const UNWANTED: [&str; 4] =
    ["kernel/sound", "kernel/drivers/gpu", "kernel/drivers/media", "kernel/drivers/net/wireless"];

/// The kernel image in the cache, downloaded when it is not there.
pub fn ensure(cache: &Path) -> Step<PathBuf> {
    let folder = cache.join("kernel");
    if let Some(vmlinuz) = find(&folder) {
        return Ok(Ok(vmlinuz));
    }
    println!("soft-roce: downloading a kernel");
    let fresh = cache.join("kernel.new");
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    let log = cache.join("kernel.log");
    if !download(&fresh, &log)? {
        // Stale lists name a kernel that the mirror no longer has.
        packages::update(&cache.join("apt.log"))?;
        if !download(&fresh, &log)? {
            let names = META_PACKAGES.join(" or ");
            let said = process::last_lines(&log);
            return Ok(Err(format!(
                "could not download {names}; run `apt-get update`; it said:\n    {said}"
            )));
        }
    }
    // Some distributions have /lib as a link, and their packages follow.
    let usr_modules = fresh.join("usr/lib/modules");
    if usr_modules.exists() && !fresh.join("lib").exists() {
        std::os::unix::fs::symlink("usr/lib", fresh.join("lib"))?;
    }
    drop_unwanted(&fresh.join("lib/modules"))?;
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::rename(&fresh, &folder)?;
    find(&folder).map(Ok).context("the kernel's package holds no vmlinuz with modules beside it")
}

/// A kernel image whose modules are there, `rdma_rxe` among them.
fn find(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder.join("boot")).ok()?;
    entries.filter_map(|entry| Some(entry.ok()?.path())).find(|path| {
        let version =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("vmlinuz-"));
        let modules = version.map(|version| folder.join("lib/modules").join(version));
        modules.is_some_and(|modules| modules.join("kernel/drivers/infiniband/sw/rxe").is_dir())
    })
}

/// The packages that hold the image and the modules, from the dependencies of the distribution's own choice.
fn package_names() -> Option<Vec<String>> {
    let depends = META_PACKAGES.iter().find_map(|meta| process::answer("apt-cache", &["depends", meta]))?;
    let image = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"))?;
    let version = image.strip_prefix("unsigned-").unwrap_or(image).to_owned();
    let mut names = vec![format!("linux-image-{image}")];
    // Debian has the modules in the image's package, Ubuntu in two others.
    for part in ["linux-modules", "linux-modules-extra"] {
        let name = format!("{part}-{version}");
        if process::answer("apt-cache", &["show", &name]).is_some_and(|text| !text.is_empty()) {
            names.push(name);
        }
    }
    Some(names)
}

/// Downloads and unpacks all packages of the kernel; false when one is not to be had.
fn download(folder: &Path, log: &Path) -> Result<bool> {
    let Some(names) = package_names() else { return Ok(false) };
    for name in names {
        if !unpack(&name, folder, log)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn unpack(name: &str, folder: &Path, log: &Path) -> Result<bool> {
    let download = folder.join("download");
    fs::create_dir_all(&download)?;
    let mut get = Command::new("apt-get");
    get.args(["download", name]).current_dir(&download);
    if !process::run_logged(&mut get, LIMIT, log)?.success() {
        return Ok(false);
    }
    for entry in fs::read_dir(&download)? {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("-x").arg(entry?.path()).arg(folder);
        if !process::run_logged(&mut dpkg, LIMIT, log)?.success() {
            return Ok(false);
        }
    }
    fs::remove_dir_all(&download)?;
    Ok(true)
}

fn drop_unwanted(modules: &Path) -> Result<()> {
    for version in fs::read_dir(modules).context("the kernel's packages hold no modules")? {
        for folder in UNWANTED.map(|part| version.as_ref().map(|version| version.path().join(part))) {
            let Ok(folder) = folder else { continue };
            if folder.exists() {
                fs::remove_dir_all(folder)?;
            }
        }
    }
    Ok(())
}
