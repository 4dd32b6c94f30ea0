//! The distribution's packages: which are missing, and installing them where that is allowed.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::{process, workspace};

const APT_LIMIT: Duration = Duration::from_secs(900);

/// Installs whatever of `names` is missing, as root or by sudo. The inner error is for people: what to install.
pub fn ensure(names: &[&str], log: &Path) -> Result<std::result::Result<(), String>> {
    if !is_debian_like() {
        let names = names.join(" ");
        return Ok(Err(format!(
            "this is neither Debian nor Ubuntu; install what there are the packages {names}"
        )));
    }
    let missing = missing(names);
    if missing.is_empty() {
        return Ok(Ok(()));
    }
    let by_hand = format!("apt-get install --no-install-recommends {}", missing.join(" "));
    let Some(privilege) = privilege() else {
        return Ok(Err(format!(
            "packages are missing and this is neither root nor sudo; run `sudo {by_hand}`"
        )));
    };
    // Two runs of apt-get that refresh its lists at once fail, instead of taking turns.
    let _turn = workspace::lock("packages")?;
    println!("installing {}", missing.join(" "));
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(&missing);
    // Stale lists name packages that the mirror no longer has.
    let done = apt_get(privilege, &["update"], log)? && apt_get(privilege, &install, log)?;
    if done && self::missing(names).is_empty() {
        return Ok(Ok(()));
    }
    let said = process::last_lines(log);
    Ok(Err(format!("could not install packages; run `{by_hand}`; apt-get said:\n    {said}")))
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

fn missing<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut query = vec!["-W", "-f", "${Package} ${db:Status-Status}\\n"];
    query.extend(names);
    // dpkg-query fails when any package is unknown, and still answers for the others.
    let known =
        Command::new("dpkg-query").args(query).output().map(|output| output.stdout).unwrap_or_default();
    let known = String::from_utf8_lossy(&known).into_owned();
    let installed = |name: &str| known.lines().any(|line| line == format!("{name} installed"));
    names.iter().copied().filter(|name| !installed(name)).collect()
}

/// Whether the distribution has apt and Debian's names for packages.
pub fn is_debian_like() -> bool {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let families =
        release.lines().filter_map(|line| line.strip_prefix("ID=").or(line.strip_prefix("ID_LIKE=")));
    let mut words = families.flat_map(|value| value.trim_matches('"').split(' '));
    words.any(|word| word == "debian" || word == "ubuntu")
}
