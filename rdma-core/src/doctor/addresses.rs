//! Addresses of this network namespace, by which a GID of it is told from one of another namespace.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::netdev::Netdev;
use crate::Gid;
use crate::memory::pinning::{NotKnown, Quoted, Reading, read_as};

/// The addresses of all interfaces of this network namespace.
///
/// A part of [`Machine`](super::Machine).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Addresses {
    /// The addresses of IPv4 (`net/fib_trie`); those of an interface that is down are left out.
    pub v4: Reading<BTreeSet<Ipv4Addr>>,
    /// The addresses of IPv6 (`net/if_inet6`).
    pub v6: Reading<BTreeSet<Ipv6Addr>>,
}

impl Addresses {
    /// Reads the files of the process, because `/proc/net` is that of the thread's leader.
    pub(super) fn read(process: &Path) -> Self {
        Self {
            v4: read_as(&process.join("net/fib_trie"), parse_v4),
            v6: read_as(&process.join("net/if_inet6"), parse_v6),
        }
    }

    /// Returns whether a GID of an interface of that name is made from an address of this namespace.
    pub(super) fn have(&self, gid: Gid, netdev: &Netdev) -> Reading<bool> {
        if let Some(address) = gid.ipv4_mapped() {
            return self.v4.as_ref().map(|all| all.contains(&address)).map_err(Clone::clone);
        }
        // The kernel makes the first GIDs of a port from the hardware's address, also where IPv6 is switched off.
        let by_hardware = netdev.address.as_ref().map(|address| is_made_from(gid, address));
        if gid.is_link_local() && by_hardware == Ok(true) {
            return Ok(true);
        }
        match &self.v6 {
            Ok(all) if all.contains(&Ipv6Addr::from(gid.0)) => Ok(true),
            Ok(_) if gid.is_link_local() => by_hardware.map_err(NotKnown::clone),
            Ok(_) => Ok(false),
            Err(unknown) => Err(unknown.clone()),
        }
    }
}

/// Whether the identifier in a link-local GID is that of a hardware address, such as `7c:8c:09:c3:cf:16`: its bytes
/// around two others, with the bit of local addresses inverted or not (`addrconf_ifid_eui48` of the kernel).
fn is_made_from(gid: Gid, address: &str) -> bool {
    const LOCAL: u8 = 0b10;
    let [_, _, _, _, _, _, _, _, first, b, c, _, _, d, e, last] = gid.0;
    let bytes: Vec<_> = address.split(':').filter_map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes == [first, b, c, d, e, last] || bytes == [first ^ LOCAL, b, c, d, e, last]
}

/// Parses a tree of routes: `|-- 10.0.0.1` for a leaf, and `/32 host LOCAL` below the leaf of an own address.
fn parse_v4(text: &str) -> Result<BTreeSet<Ipv4Addr>, String> {
    let (mut all, mut leaf) = (BTreeSet::new(), None::<Ipv4Addr>);
    for line in text.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = Some(address.parse().map_err(|_| format!("{} is no address", Quoted(address)))?);
        } else if line.starts_with("/32 ") && line.split(' ').any(|word| word == "LOCAL") {
            all.extend(leaf.iter());
        }
    }
    if leaf.is_none() { Err("no route".to_owned()) } else { Ok(all) }
}

/// Parses lines that begin with 32 digits: `fe80000000000000… 02 40 20 80 eth0`.
fn parse_v6(text: &str) -> Result<BTreeSet<Ipv6Addr>, String> {
    let address = |line: &str| {
        let digits = line.split(' ').next().filter(|digits| digits.len() == 32)?;
        u128::from_str_radix(digits, 16).ok().map(Ipv6Addr::from)
    };
    text.lines().map(|line| address(line).ok_or_else(|| format!("{} is no address", Quoted(line)))).collect()
}
