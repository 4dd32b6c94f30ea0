//! The needs of a virtual machine on this host, found in the cache or installed: packages from the
//! distribution, [`kernel`] with `rdma_rxe` as a module, [`virtme`] to boot it.

mod kernel;
mod virtme;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::{packages, workspace};

/// Packages that boot the machine, and those of the tools that people run inside it.
const PACKAGES: [&str; 12] = [
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
    "infiniband-diags",
    "perftest",
];

const NOT_DEBIAN: &str = "no rdma_rxe here, and only Debian and Ubuntu have the packages to boot a machine with it; \
    load it on this host: `modprobe rdma_rxe` (Fedora and its kin: kernel-modules-extra, iproute, libibverbs)";

/// The result of [`prepare`].
pub enum Ready {
    /// Machines can be booted.
    Yes(Tools),
    /// They cannot; the reason names what to install.
    No(String),
}

/// The parts of a virtual machine, all in the cache.
pub struct Tools {
    /// Where verdicts about this host are kept.
    pub cache: PathBuf,
    /// The kernel image; its modules lie beside it, as in its package.
    pub vmlinuz: PathBuf,
    /// virtme-ng's program.
    pub vng: PathBuf,
}

impl Tools {
    /// Where programs are looked for: virtme-ng finds its own parts there.
    pub fn search_path(&self) -> Result<OsString> {
        let own = self.vng.parent().map(Path::to_path_buf);
        let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
        let path = env::var_os("PATH").unwrap_or_default();
        Ok(env::join_paths(own.into_iter().chain(env::split_paths(&path)).chain(system))?)
    }
}

/// Finds or installs everything. Two that prepare at once take turns.
pub fn prepare() -> Result<Ready> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(Ready::No(
            "the virtual machine is for x86-64; load rdma_rxe on this host instead".to_owned(),
        ));
    }
    let cache = workspace::cache()?.join("soft-roce");
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let started = Instant::now();
    let _turn = workspace::lock("soft-roce")?;
    if !packages::is_debian_like() {
        return Ok(Ready::No(NOT_DEBIAN.to_owned()));
    }
    if let Err(reason) = packages::ensure(&PACKAGES, &cache.join("apt.log"))? {
        return Ok(Ready::No(reason));
    }
    let vmlinuz = match kernel::ensure(&cache)? {
        Ok(vmlinuz) => vmlinuz,
        Err(reason) => return Ok(Ready::No(reason)),
    };
    let vng = match virtme::ensure(&cache)? {
        Ok(vng) => vng,
        Err(reason) => return Ok(Ready::No(reason)),
    };
    println!(
        "soft-roce: tools ready in {:.1} s, kernel {}",
        started.elapsed().as_secs_f64(),
        file_name(&vmlinuz)
    );
    Ok(Ready::Yes(Tools { cache, vmlinuz, vng }))
}

/// A step that may find that the host lacks something: the reason then says what, for people.
type Step<T> = Result<std::result::Result<T, String>>;

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
