//! The libraries that people would use instead for 4096 blocks of 64 KiB.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs;
use crate::ratio::Bound;
use crate::soft::Outcome;

/// A library that moves KV blocks, in a Python environment of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Other {
    /// NIXL over UCX.
    Nixl,
    /// Mooncake's transfer engine.
    Mooncake,
}

impl Other {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Nixl, Self::Mooncake];

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        if self == Self::Nixl { "NIXL" } else { "Mooncake" }
    }

    /// The bound of ours over theirs.
    #[must_use]
    pub fn bound(self) -> Bound {
        Bound::AtLeast(if self == Self::Nixl { 1.3 } else { 4.8 })
    }

    /// The Python interpreter that has it, if the folder `PEERS` does.
    #[must_use]
    pub fn python(self) -> Option<PathBuf> {
        let environment = if self == Self::Nixl { "venv-nixl" } else { "venv-mc" };
        let python = PathBuf::from(std::env::var_os("PEERS")?).join(environment).join("bin/python");
        python.exists().then_some(python)
    }

    /// GB/s between two processes.
    ///
    /// # Errors
    ///
    /// The program fails, or prints no figure.
    pub fn rate(self, python: &Path) -> Outcome<f64> {
        let script = if self == Self::Nixl { "kv_nixl.py" } else { "kv_mooncake.py" };
        let mut command = Command::new(python);
        command.arg(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/peers")).join(script));
        let printed = String::from_utf8(programs::output(&mut command)?.stdout)?;
        let last = printed.lines().last().unwrap_or_default().trim();
        last.parse().map_err(|error| format!("{error}: {printed}").into())
    }
}
