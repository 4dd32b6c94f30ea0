//! Finding, opening and querying devices.

use std::io;

/// libibverbs cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryUnavailable {
    /// No library of the name could be loaded.
    #[error(
        "libibverbs does not load (tried {}): {reason}; install it (Debian, Ubuntu: libibverbs1 ibverbs-providers; \
         Fedora, RHEL: libibverbs) or use the software device",
        tried.join(", ")
    )]
    NotFound {
        /// The names tried.
        tried: Vec<&'static str>,
        /// What the loader said.
        reason: String,
    },
    /// The library lacks a symbol of the version that we need.
    #[error(
        "libibverbs is too old: it has no {symbol} of version {version}; install a newer rdma-core package"
    )]
    TooOld {
        /// The symbol.
        symbol: &'static str,
        /// Its version.
        version: &'static str,
    },
    /// The program is linked statically against musl and cannot load a library.
    #[error(
        "this program is linked statically and cannot load libibverbs: build it for a dynamically linked target, \
         or use the software device"
    )]
    StaticBuild,
}

/// A device could not be found or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No device has that name.
    #[error(
        "no RDMA device is named {name}; there {}{}",
        if available.is_empty() { "is none".to_owned() } else { format!("are: {}", available.join(", ")) },
        reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"))
    )]
    UnknownDevice {
        /// What was asked for.
        name: String,
        /// The devices there are.
        available: Vec<String>,
        /// Why there are none, when that is known.
        reason: Option<String>,
    },
    /// The library is there and cannot list the devices.
    #[error(
        "ibv_get_device_list failed: {0}; load the kernel's ib_uverbs module, and in a container mount \
         /sys/class/infiniband and /dev/infiniband"
    )]
    NotListed(#[source] io::Error),
    /// The device is there and would not open.
    #[error("device {name} does not open: {source}; {mend}")]
    Refused {
        /// Its name.
        name: String,
        /// What the system said.
        source: io::Error,
        /// What usually mends it.
        mend: String,
    },
    /// The software device could not start.
    #[error(
        "software device {name} does not start ({what}): {source}; {}",
        super::limit_advice(source).unwrap_or("choose another address or port, or raise the limit named")
    )]
    Soft {
        /// Its name.
        name: String,
        /// What it was doing.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The library cannot be used.
    #[error(transparent)]
    Library(#[from] LibraryUnavailable),
}

/// A device did not answer a question about itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The device has no such port.
    #[error("device {device} has no port {port}: its ports are 1 to {ports}")]
    NoSuchPort {
        /// The device.
        device: String,
        /// The port asked for.
        port: u8,
        /// How many it has.
        ports: u8,
    },
    /// The verb failed.
    #[error("{verb} on {device} failed: {source}; see the kernel's log, the device may have been removed")]
    Refused {
        /// The verb, by its C name.
        verb: &'static str,
        /// The device.
        device: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A symbol that the call needs is not in the library found.
    #[error(transparent)]
    Library(#[from] LibraryUnavailable),
}
