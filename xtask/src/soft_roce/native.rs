//! This host's own device: a network card or a soft-RoCE device that is there, or one made for the run where
//! the kernel has `rdma_rxe` and this is root.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::guest::{self, Command, Place};
use super::{Outcome, Run};
use crate::{process, workspace};

const SETUP_LIMIT: Duration = Duration::from_secs(30);
const DEVICES: &str = "/sys/class/infiniband";
const INTERFACE: &str = "softroce0";

/// A device of this host.
pub struct Device {
    name: String,
    made: bool,
    /// Two runs take turns: the one that made the device takes it away, and timings would mix.
    _turn: File,
}

/// A device that is there, or one that could be made.
pub fn find() -> Result<Option<Device>> {
    let could_make = rustix::process::geteuid().is_root()
        && process::answer("modprobe", &["--dry-run", "rdma_rxe"]).is_some()
        && process::answer("rdma", &["link", "show"]).is_some();
    if active_device().is_none() && !could_make {
        return Ok(None);
    }
    let turn = workspace::lock("native")?;
    if let Some(name) = active_device() {
        return Ok(Some(Device { name, made: false, _turn: turn }));
    }
    let made = could_make && make()?;
    Ok(made.then(|| Device { name: guest::DEVICE.to_owned(), made, _turn: turn }))
}

/// Runs the command here, on `device`.
pub fn run(device: &Device, command: &Command, wanted: &[&str]) -> Result<Run> {
    println!("soft-roce: using this host's own device {}", device.name);
    let place = Place { host: 0, hosts: 1 };
    let out = workspace::target()?.join("soft-roce").join(format!("native-{}", std::process::id()));
    fs::create_dir_all(&out)?;
    // A shell raises the limit on pinned memory as far as it may; a command that needs more says so itself.
    let mut shell = std::process::Command::new("bash");
    shell.args([
        "-c",
        "ulimit -l unlimited 2>/dev/null || ulimit -l \"$(ulimit -H -l)\"; exec \"$@\"",
        "soft-roce",
    ]);
    shell.args(&command.argv).envs(place.environment(&device.name, &out));
    if device.made {
        shell.env("ROCE_INTERFACE", INTERFACE);
    }
    if let Some(address) = address_of(&device.name) {
        shell.env("ROCE_SELF", &address).env("ROCE_PEER", &address);
    }
    let status = process::run(&mut shell, command.timeout)?;
    let files = wanted.iter().map(|name| fs::read_to_string(out.join(name)).unwrap_or_default()).collect();
    fs::remove_dir_all(&out)?;
    let outcome = match status.code() {
        Some(0) => Outcome::Passed,
        _ => Outcome::Failed(format!("the command ended with {status}")),
    };
    Ok(Run { outcome, files: vec![files] })
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.made {
            let _ = quiet("ip", &["link", "delete", INTERFACE]);
        }
    }
}

/// The first device with an active port; soft-RoCE ones before cards.
fn active_device() -> Option<String> {
    let entries = fs::read_dir(DEVICES).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_active = |name: &String| {
        let state = fs::read_to_string(Path::new(DEVICES).join(name).join("ports/1/state"));
        state.is_ok_and(|state| state.contains("ACTIVE"))
    };
    let mut active: Vec<String> = names.filter(is_active).collect();
    active.sort_by_key(|name| (!name.starts_with("rxe"), name.clone()));
    active.into_iter().next()
}

/// Makes a device on an interface of its own, so that the host's network is left alone.
fn make() -> Result<bool> {
    let address = format!("{}/24", Place { host: 0, hosts: 1 }.address());
    let steps: [(&str, &[&str]); 6] = [
        ("modprobe", &["rdma_rxe"]),
        ("modprobe", &["rdma_ucm"]),
        ("ip", &["link", "add", INTERFACE, "type", "dummy"]),
        ("ip", &["addr", "add", &address, "dev", INTERFACE]),
        ("ip", &["link", "set", INTERFACE, "mtu", "4200", "up"]),
        ("rdma", &["link", "add", guest::DEVICE, "type", "rxe", "netdev", INTERFACE]),
    ];
    for (program, args) in steps {
        if !quiet(program, args)? {
            let _ = quiet("ip", &["link", "delete", INTERFACE]);
            return Ok(false);
        }
    }
    Ok(true)
}

fn quiet(program: &str, args: &[&str]) -> Result<bool> {
    let log = workspace::target()?.join("soft-roce-setup.log");
    let mut command = std::process::Command::new(program);
    process::run_logged(command.args(args), SETUP_LIMIT, &log)
        .map(|status| status.success())
        .context("native setup")
}

/// The IPv4 address in the device's table of GIDs, if it has one.
fn address_of(device: &str) -> Option<String> {
    let gids = fs::read_dir(Path::new(DEVICES).join(device).join("ports/1/gids")).ok()?;
    gids.filter_map(|gid| fs::read_to_string(gid.ok()?.path()).ok())
        .find_map(|gid| mapped_address(gid.trim()))
}

/// `0000:0000:0000:0000:0000:ffff:0a09:0001` as `10.9.0.1`.
fn mapped_address(gid: &str) -> Option<String> {
    let address: std::net::Ipv6Addr = gid.parse().ok()?;
    address.to_ipv4_mapped().map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_gid_gives_its_address() {
        let gid = "0000:0000:0000:0000:0000:ffff:0a09:0001";
        assert_eq!(mapped_address(gid).as_deref(), Some("10.9.0.1"));
    }

    #[test]
    fn a_link_local_gid_gives_none() {
        assert_eq!(mapped_address("fe80:0000:0000:0000:5054:00ff:fe00:0001"), None);
        assert_eq!(mapped_address("garbage"), None);
    }
}
