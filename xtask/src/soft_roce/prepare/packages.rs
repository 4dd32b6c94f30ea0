//! The distribution's packages: which are missing, and installing them where that is allowed.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::{Step, last_lines};
use crate::process;

/// What boots the machine, and what people run inside it.
const PACKAGES: [&str; 11] = [
    "qemu-system-x86",
    "busybox-static",
    "kmod",
    "udev",
    "iproute2",
    "zstd",
    "python3-venv",
    "rdma-core",
    "ibverbs-providers",
    "ibverbs-utils",
    "perftest",
];

const APT_LIMIT: Duration = Duration::from_secs(900);

/// Installs whatever is missing, as root or by sudo.
pub fn ensure(cache: &Path) -> Step<()> {
    if !is_debian_like() {
        return Ok(Err(
            "no rdma_rxe here, and only Debian and Ubuntu have the packages to boot a machine with it; \
             load it on this host: `modprobe rdma_rxe` (Fedora and its kin: kernel-modules-extra, iproute, libibverbs)"
                .to_owned(),
        ));
    }
    let missing = missing();
    if missing.is_empty() {
        return Ok(Ok(()));
    }
    let by_hand = format!("apt-get install --no-install-recommends {}", missing.join(" "));
    let Some(privilege) = privilege() else {
        return Ok(Err(format!(
            "packages are missing and this is neither root nor sudo; run `sudo {by_hand}`"
        )));
    };
    println!("soft-roce: installing {}", missing.join(" "));
    let log = cache.join("apt.log");
    let install =
        ["install", "--yes", "--no-install-recommends"].iter().copied().chain(missing.iter().copied());
    let install: Vec<&str> = install.collect();
    // Stale lists name packages that the mirror no longer has.
    let done = apt_get(privilege, &["update"], &log)? && apt_get(privilege, &install, &log)?;
    if done && self::missing().is_empty() {
        return Ok(Ok(()));
    }
    Ok(Err(format!("could not install packages; run `{by_hand}`; apt-get said:\n    {}", last_lines(&log))))
}

/// Refreshes the lists of packages, where that is allowed.
pub fn update(log: &Path) -> Result<()> {
    if let Some(privilege) = privilege() {
        apt_get(privilege, &["update"], log)?;
    }
    Ok(())
}

/// Runs apt-get without questions; true when it succeeded.
fn apt_get(privilege: &[&str], args: &[&str], log: &Path) -> Result<bool> {
    let words =
        [privilege, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=300"]];
    let mut words = words.concat().into_iter().chain(args.iter().copied()).map(OsStr::new);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    Ok(process::run_logged(&mut command, APT_LIMIT, log)?.success())
}

/// How to become root: nothing to put in front, sudo, or not at all.
fn privilege() -> Option<&'static [&'static str]> {
    if rustix::process::geteuid().is_root() {
        return Some(&[]);
    }
    process::answer("sudo", &["-n", "true"]).map(|_| ["sudo", "-n"].as_slice())
}

fn missing() -> Vec<&'static str> {
    let mut query = vec!["-W", "-f", "${Package} ${db:Status-Status}\\n"];
    query.extend(PACKAGES);
    // dpkg-query fails when any package is unknown, and still answers for the others.
    let known =
        Command::new("dpkg-query").args(query).output().map(|output| output.stdout).unwrap_or_default();
    let known = String::from_utf8_lossy(&known).into_owned();
    let installed = |package: &str| known.lines().any(|line| line == format!("{package} installed"));
    PACKAGES.into_iter().filter(|package| !installed(package)).collect()
}

fn is_debian_like() -> bool {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let families =
        release.lines().filter_map(|line| line.strip_prefix("ID=").or(line.strip_prefix("ID_LIKE=")));
    let mut words = families.flat_map(|value| value.trim_matches('"').split(' '));
    words.any(|word| word == "debian" || word == "ubuntu")
}
