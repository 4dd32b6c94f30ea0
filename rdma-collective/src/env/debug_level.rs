//! The value of `NCCL_DEBUG`: the level of the log.

use super::names::NCCL_DEBUG;
use super::reader::{Reader, invalid};
use crate::env::error::EnvErrorKind;

/// The level of a program's log, in NCCL's words. Each level includes the ones before it.
///
/// A part of [`NcclOptions`](crate::env::NcclOptions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DebugLevel {
    /// No log.
    #[default]
    None,
    /// The version of the library.
    Version,
    /// Failures and doubtful situations.
    Warn,
    /// The choices that were made, and their reasons.
    Info,
    /// Every call. (NCCL's `ABORT` is read as `INFO`.)
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
