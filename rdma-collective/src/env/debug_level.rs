//! `NCCL_DEBUG`: how much is said.

use super::nccl::NCCL_DEBUG;
use super::reader::{Reader, invalid};
use crate::env::error::EnvErrorKind;

/// How much a program says, in NCCL's words; each says what those before it say, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DebugLevel {
    /// Nothing.
    #[default]
    None,
    /// Which version runs.
    Version,
    /// What went wrong.
    Warn,
    /// What was chosen, and why.
    Info,
    /// Every call. NCCL's `ABORT` counts as `INFO`.
    Trace,
}

impl DebugLevel {
    pub(super) fn read(reader: &Reader<'_>) -> Result<Self, EnvErrorKind> {
        let Some(setting) = reader.setting(NCCL_DEBUG)? else { return Ok(Self::None) };
        match setting.value.to_ascii_uppercase().as_str() {
            "NONE" => Ok(Self::None),
            "VERSION" => Ok(Self::Version),
            "WARN" => Ok(Self::Warn),
            "INFO" | "ABORT" => Ok(Self::Info),
            "TRACE" => Ok(Self::Trace),
            _ => Err(invalid(setting)),
        }
    }
}
