//! Errors of finding, opening and querying devices.

use std::io;

/// libibverbs cannot be used. The software device still can.
///
/// [`DeviceList::library_unavailable`](crate::DeviceList::library_unavailable) has it.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryUnavailable {
    /// No library with one of the known names could be loaded.
    #[error(
        "libibverbs does not load (tried {}): {reason}; install it (Debian, Ubuntu: libibverbs1 ibverbs-providers; \
         Fedora, RHEL: libibverbs) or use the software device",
        tried.join(", ")
    )]
    NotFound {
        /// The file names that were tried.
        tried: Vec<&'static str>,
        /// The error of the dynamic loader.
        reason: String,
    },
    /// The library lacks a symbol in the version that this crate needs.
    #[error(
        "libibverbs is too old: it has no {symbol} of version {version}; install a newer rdma-core package"
    )]
    TooOld {
        /// Name of the symbol.
        symbol: &'static str,
        /// Version of the symbol, such as `IBVERBS_1.8`.
        version: &'static str,
    },
    /// The program is linked statically against musl, which cannot load libraries at run time.
    #[error(
        "this program is linked statically and cannot load libibverbs: build it for a dynamically linked target, \
         or use the software device"
    )]
    StaticBuild,
}

/// A device could not be found or opened.
///
/// Raised by [`Device::open`](crate::Device::open) and [`DeviceList::find`](crate::DeviceList::find).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No device has the requested name.
    #[error(
        "no RDMA device is named {name}; there {}{}",
        if available.is_empty() { "is none".to_owned() } else { format!("are: {}", available.join(", ")) },
        reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"))
    )]
    UnknownDevice {
        /// The requested name.
        name: String,
        /// Names of the devices that are present.
        available: Vec<String>,
        /// The reason why there are no devices, when it is known.
        reason: Option<String>,
    },
    /// libibverbs was loaded but cannot list the devices.
    #[error(
        "ibv_get_device_list failed: {0}; load the kernel's ib_uverbs module, and in a container mount \
         /sys/class/infiniband and /dev/infiniband"
    )]
    NotListed(#[source] io::Error),
    /// The device is present but does not open.
    #[error("device {name} does not open: {source}; {mend}")]
    Refused {
        /// Name of the device.
        name: String,
        /// The system's error.
        source: io::Error,
        /// The usual remedy.
        mend: String,
    },
    /// The software device could not start.
    #[error(
        "software device {name} does not start ({what}): {source}; {}",
        super::limit_advice(source).unwrap_or("choose another address or port, or raise the limit named")
    )]
    Soft {
        /// Name of the device.
        name: String,
        /// The step that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// libibverbs cannot be used.
    #[error(transparent)]
    Library(#[from] LibraryUnavailable),
    /// This process was forked from the one that made the object.
    #[error(transparent)]
    Forked(#[from] super::Forked),
}

/// A device did not answer a query.
///
/// Raised by the queries of a [`Context`](crate::Context).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The device has no port with the requested number.
    #[error("device {device} has no port {port}: its ports are 1 to {ports}")]
    NoSuchPort {
        /// Name of the device.
        device: String,
        /// The requested port number.
        port: u8,
        /// Number of ports that the device has.
        ports: u8,
    },
    /// The query verb failed.
    #[error("{verb} on {device} failed: {source}; see the kernel's log, the device may have been removed")]
    Refused {
        /// The C name of the verb.
        verb: &'static str,
        /// Name of the device.
        device: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The installed libibverbs lacks a symbol that the call needs.
    #[error(transparent)]
    Library(#[from] LibraryUnavailable),
    /// This process was forked from the one that made the object.
    #[error(transparent)]
    Forked(#[from] super::Forked),
}
