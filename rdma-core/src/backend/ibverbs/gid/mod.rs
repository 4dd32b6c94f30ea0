//! The GID table of a port: identifiers, their types, and the network interfaces behind them.
#![expect(unsafe_code, reason = "calls libibverbs and libc")]

use std::ffi::CString;
use std::io;
use std::net::Ipv6Addr;
use std::path::Path;

use super::Context;
use super::sys::{self, ibv_gid_entry};
use crate::error::QueryError;
use crate::{Gid, GidEntry, GidType, LinkLayer, PortNum};

impl Context {
    /// Returns the filled entries of the table of a port, by index.
    ///
    /// Asks the library, and reads sysfs where the library is too old or fails. It fails as a whole on kernels before
    /// 5.10 if one entry's interface is in another network namespace.
    pub(crate) fn gid_table(&self, port: PortNum) -> Result<Vec<GidEntry>, QueryError> {
        let attributes = self.query_port(port)?;
        let sysfs = self.sysfs().join(format!("ports/{port}"));
        match query_gid_table(self) {
            Ok(all) => Ok(all
                .iter()
                .filter(|raw| raw.port_num == u32::from(port.0))
                .map(|raw| {
                    let netdev = netdev(&sysfs, raw.gid_index, raw.ndev_ifindex);
                    GidEntry::new(raw.gid_index, Gid(raw.gid.raw), GidType(raw.gid_type), netdev)
                })
                .collect()),
            Err(error) => {
                crate::log::debug!(%error, device = %sysfs.display(), "the library returned no GID table; sysfs is read instead");
                Ok(read_sysfs(&sysfs, attributes.gid_table_len, attributes.link_layer))
            }
        }
    }
}

/// Asks the library for the filled entries of all ports.
fn query_gid_table(context: &Context) -> Result<Vec<ibv_gid_entry>, QueryError> {
    let query = context.symbols._ibv_query_gid_table.clone()?;
    let mut len = 0;
    for port in 1..=context.limits.device.ports {
        len += context.query_port(PortNum(port))?.gid_table_len as usize;
    }
    let mut entries = vec![ibv_gid_entry::zeroed(); len];
    // SAFETY: the context is open as long as `context`, and the array has `len` entries of the stated size, so the call
    // writes only within it.
    let filled = unsafe { query(context.as_ptr(), entries.as_mut_ptr(), len, 0, size_of::<ibv_gid_entry>()) };
    match usize::try_from(filled) {
        Ok(filled) => entries.truncate(filled),
        Err(_) => {
            let errno = i32::try_from(-filled).unwrap_or(libc::EINVAL);
            return Err(context.refused("ibv_query_gid_table", io::Error::from_raw_os_error(errno)));
        }
    }
    Ok(entries)
}

/// Reads the table from the folder of the port in sysfs.
pub(super) fn read_sysfs(port: &Path, len: u32, link_layer: LinkLayer) -> Vec<GidEntry> {
    let entry = |index| {
        let gid = std::fs::read_to_string(port.join(format!("gids/{index}"))).ok()?;
        // Eight groups of four digits: the long form of an IPv6 address.
        let gid = Gid::from(gid.trim().parse::<Ipv6Addr>().ok()?);
        if gid.is_zero() {
            return None;
        }
        // Reading the type fails for an empty entry, and on InfiniBand for every entry.
        let kind = std::fs::read_to_string(port.join(format!("gid_attrs/types/{index}"))).ok();
        let kind = match kind.as_deref().map(str::trim) {
            Some("RoCE v2") => GidType::ROCE_V2,
            _ if link_layer == LinkLayer::ETHERNET => GidType::ROCE_V1,
            _ => GidType::INFINIBAND,
        };
        Some(GidEntry::new(index, gid, kind, netdev(port, index, 0)))
    };
    (0..len).filter_map(entry).collect()
}

/// Returns the interface behind an entry, if it is in this network namespace.
///
/// The kernel reports name and index as they are in the interface's own namespace. An interface of another namespace is
/// taken for a local one only if both agree, which is unlikely. An `ifindex` of 0 means unknown.
fn netdev(port: &Path, index: u32, ifindex: u32) -> Option<String> {
    let name = std::fs::read_to_string(port.join(format!("gid_attrs/ndevs/{index}"))).ok()?;
    let name = name.trim();
    let here = index_of_netdev(name)?;
    (ifindex == 0 || ifindex == here).then(|| name.to_owned())
}

/// Returns the index of an interface of this network namespace.
fn index_of_netdev(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: `name` is a C string that lives for the call, and the call only reads it.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => None,
        index => Some(index),
    }
}

// The numbers of the public types are those of the C headers; this stops the build if they differ.
const _: () = {
    assert!(GidType::INFINIBAND.0 == sys::IBV_GID_TYPE_IB);
    assert!(GidType::ROCE_V1.0 == sys::IBV_GID_TYPE_ROCE_V1);
    assert!(GidType::ROCE_V2.0 == sys::IBV_GID_TYPE_ROCE_V2);
};

#[cfg(test)]
mod tests;
