//! The README's promise that its programs need cargo and a C linker alone, kept in a mount namespace from which
//! the RDMA libraries and headers, clang, cmake and pkg-config are gone.

use std::fs;
use std::process::Command;

use anyhow::{Result, bail};

use crate::cargo::{LIMIT, cargo};
use crate::{process, programs, workspace};

/// Builds and runs each program there, into a build folder of its own so that nothing was built before.
pub fn run() -> Result<()> {
    let target = workspace::target()?.join("bare");
    let room = target.join("room");
    fs::create_dir_all(&room)?;
    let script = target.join("bare.sh");
    fs::write(&script, include_str!("bare.sh"))?;
    for program in programs::README {
        println!("bare: cargo run --release --bin {program}");
        let mut command = namespace();
        command.arg("bash").arg(&script).arg(&room);
        command.args(["cargo", "run", "--release", "--bin"]).args(program.split(' '));
        let plain = cargo(&[])?;
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("CARGO_TARGET_DIR", &target).current_dir(workspace::root()?);
        // The step asks what a build needs, not how fast the program is.
        command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0").env("CARGO_PROFILE_RELEASE_DEBUG", "0");
        let status = process::run(&mut command, LIMIT)?;
        if !status.success() {
            bail!("`cargo run --release --bin {program}` ended with {status} on a bare machine");
        }
    }
    Ok(())
}

/// A mount namespace of our own: as root, by sudo, or in a user namespace.
fn namespace() -> Command {
    let is_root = rustix::process::geteuid().is_root();
    let sudo = !is_root && process::answer("sudo", &["-n", "true"]).is_some();
    let mut command = Command::new(if sudo { "sudo" } else { "unshare" });
    if sudo {
        command.args(["-n", "--preserve-env", "unshare"]);
    }
    if !is_root && !sudo {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "--propagation", "private"]);
    command
}
