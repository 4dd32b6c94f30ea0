//! The file by which a Prometheus finds the servers of a demo.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use crate::process::Process;

/// A file of addresses, for `file_sd_configs`, which goes with this.
pub(super) struct Targets(PathBuf);

impl Targets {
    /// Names servers. One that is started again has its address again.
    pub fn write<'a>(path: &Path, servers: impl Iterator<Item = &'a Process>) -> Result<Self> {
        let addresses: Vec<_> = servers.map(|server| server.address).collect();
        // Prometheus reads a file that it sees, so the file has to be whole then.
        let part = path.with_extension("part");
        let written = std::fs::write(&part, json!([{ "targets": addresses }]).to_string());
        let written = written.and_then(|()| std::fs::rename(&part, path));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}
