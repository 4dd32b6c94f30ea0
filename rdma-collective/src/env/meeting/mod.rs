//! The place where ranks meet, as the variables give it: an endpoint, or the job's name on one host.
//!
//! Names are resolved, and sockets opened, in `join` only.

use std::fmt;

use super::reader::invalid;
use crate::env::Setting;
use crate::env::error::EnvErrorKind;

/// The place where the ranks of a job meet.
///
/// A part of [`Launch`](crate::env::Launch).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Meeting {
    /// The process that started the ranks serves the store at this endpoint.
    Served(Endpoint),
    /// Rank 0 serves the store at this port or, if the port is taken, at the first free one of
    /// [`meeting_ports`](crate::bootstrap::meeting_ports).
    Address(Endpoint),
    /// Like [`Address`](Self::Address), but never at the port itself: torch's own store listens there, or will.
    BesideTorch(Endpoint),
    /// All ranks are on this host and meet by the job's name.
    Namespace(Namespace),
}

/// A host and a port.
///
/// A part of [`Meeting`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The name or the address of the host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The variable that names the host.
    pub by: String,
}

impl Endpoint {
    /// The port for launchers that give a host only: torch's default port.
    pub const PORT_DEFAULT: u16 = 29500;

    /// The variable that names the host, with its value.
    pub(super) fn setting(&self) -> Setting {
        Setting { name: self.by.clone(), value: self.host.clone() }
    }

    /// Reads `host:port`, with brackets around an IPv6 address.
    pub(super) fn parse(setting: Setting) -> Result<Self, EnvErrorKind> {
        let (host, port) = setting.value.rsplit_once(':').unwrap_or_default();
        let bare = match host.strip_prefix('[') {
            Some(host) => host.strip_suffix(']'),
            None => Some(host).filter(|host| !host.contains(':')),
        };
        let digits = !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit());
        match (bare, port.parse()) {
            (Some(host), Ok(port)) if !host.is_empty() && digits && port > 0 => {
                Ok(Self { host: host.to_owned(), port, by: setting.name })
            }
            _ => Err(invalid(setting)),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// A name that all ranks of a job share, and no other job on this host has.
///
/// A part of [`Meeting`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Namespace(String);

impl Namespace {
    /// Makes the name of a job from its manager (Slurm, PMIx) and the manager's parts of the name.
    #[must_use]
    pub fn new(manager: &str, parts: &[&str]) -> Self {
        Self(format!("{manager}/{}", parts.join("/")))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests;
