//! The C headers of libibverbs in several releases of rdma-core, whichever of them this host has installed: Debian's
//! packages, unpacked into the cache. Nothing of them is installed.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::debian::Apt;
use crate::workspace;

const PACKAGE: &str = "libibverbs-dev";
/// The package's version upstream, and a suite that has it. The newest suite may have a later one.
const RELEASES: [(&str, &str); 4] = [("33", "bullseye"), ("44", "bookworm"), ("56", "trixie"), ("65", "sid")];

/// Unpacked headers.
pub struct Headers {
    /// Version of the package.
    pub version: String,
    /// The folder to include from.
    pub include: PathBuf,
}

/// Returns the headers of each release, those in the cache without a download.
pub fn of_all_releases() -> Result<Vec<Headers>> {
    let cache = workspace::cache()?.join("headers");
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let _turn = workspace::lock("headers")?;
    let cached = |release: &str| -> Result<Option<Headers>> {
        for entry in fs::read_dir(&cache)? {
            let (path, name) = {
                let it = entry?;
                (it.path(), it.file_name().to_string_lossy().into_owned())
            };
            if name.starts_with(&format!("{release}.")) {
                return Ok(Some(Headers { version: name, include: path.join("usr/include") }));
            }
        }
        Ok(None)
    };
    let mut apt = None;
    RELEASES
        .into_iter()
        .map(|(release, suite)| match cached(release)? {
            Some(headers) => Ok(headers),
            None => {
                if apt.is_none() {
                    apt = Some(Apt::new(&cache, &RELEASES.map(|(_, suite)| suite))?);
                }
                let (version, folder) =
                    apt.as_ref().context("apt is set up")?.unpack(PACKAGE, suite, &cache)?;
                Ok(Headers { include: folder.join("usr/include"), version })
            }
        })
        .collect()
}
