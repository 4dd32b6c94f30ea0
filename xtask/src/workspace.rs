//! Where the workspace, its build output and the cache that outlives both are.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{env, mem};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::process;

const LOCK_LIMIT: Duration = Duration::from_secs(900);

/// The folder of the workspace's `Cargo.toml`.
pub fn root() -> Result<PathBuf> {
    let xtask = env::var_os("CARGO_MANIFEST_DIR").context("run this through `cargo xtask`")?;
    let xtask = PathBuf::from(xtask);
    Ok(xtask.parent().context("xtask lies outside a workspace")?.to_path_buf())
}

/// Cargo's build output.
pub fn target() -> Result<PathBuf> {
    match set("CARGO_TARGET_DIR") {
        Some(target) => Ok(env::current_dir()?.join(target)),
        None => Ok(root()?.join("target")),
    }
}

/// The folder of things worth keeping between clones and after `cargo clean`: kernels, tools, verdicts on this machine.
pub fn cache() -> Result<PathBuf> {
    let base = match set("XDG_CACHE_HOME") {
        Some(cache) => cache,
        None => {
            set("HOME").context("neither XDG_CACHE_HOME nor HOME is set: set one of them")?.join(".cache")
        }
    };
    Ok(base.join("rdma-xtask"))
}

/// Waits for this process's turn at what `name` stands for; dropping the file ends the turn.
pub fn lock(name: &str) -> Result<File> {
    let folder = cache()?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let path = folder.join(name).with_extension("lock");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let deadline = Instant::now() + LOCK_LIMIT;
    let mut told = false;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {}
            Err(Errno::WOULDBLOCK) => bail!("another run held {} all the time", path.display()),
            Err(error) => return Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
        if !mem::replace(&mut told, true) {
            println!("waiting for another run ({name})");
        }
        process::pause()?;
    }
}

/// True in CI, where a suite that could not run is a failure.
pub fn in_ci() -> bool {
    env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1")
}

/// An environment variable as a path; an empty one counts as unset.
fn set(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
