//! GIDs of software devices. The routable GID holds everything that a peer needs to reach the device:
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 5 | `fd 73 6f 66 74 00`: the prefix of a unique local address, with the word `soft` |
//! | 6, 7 | the TCP port that the device listens on, big endian; 0 when it does not |
//! | 8 to 11 | a random number, a new one each time a device is opened |
//! | 12 to 15 | the IPv4 address |

#![expect(unsafe_code, reason = "asks the C library for the interface that has an address")]

use std::ffi::CStr;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::{Gid, GidEntry, GidType};

const PREFIX: [u8; 6] = *b"\xfdsoft\0";

/// The routable GID of the device that listens at `address`. The random `nonce` keeps a later device at the same
/// address from being taken for this one.
pub(super) fn routable(address: SocketAddrV4, nonce: u32) -> Gid {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&PREFIX);
    bytes[6..8].copy_from_slice(&address.port().to_be_bytes());
    bytes[8..12].copy_from_slice(&nonce.to_be_bytes());
    bytes[12..].copy_from_slice(&address.ip().octets());
    Gid(bytes)
}

/// The link-local GID of a device, which has a meaning inside this process alone.
pub(super) fn link_local(nonce: u32) -> Gid {
    let mut bytes = [0; 16];
    (bytes[0], bytes[1]) = (0xfe, 0x80);
    bytes[12..].copy_from_slice(&nonce.to_be_bytes());
    Gid(bytes)
}

/// Returns the address that the device of `gid` listens at; `None` for another kind of GID, or a device that does not
/// listen.
pub(super) fn listens_at(gid: Gid) -> Option<SocketAddrV4> {
    let [prefix @ .., p0, p1, _, _, _, _, a, b, c, d] = gid.0;
    let port = u16::from_be_bytes([p0, p1]);
    (prefix == PREFIX && port != 0).then(|| SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port))
}

/// The GID table of port 1: the link-local GID, then the routable one.
pub(super) fn table(address: SocketAddrV4, nonce: u32, netdev: &str) -> Vec<GidEntry> {
    let entry = |index, gid| GidEntry::new(index, gid, GidType::ROCE_V2, Some(netdev.to_owned()));
    vec![entry(0, link_local(nonce)), entry(1, routable(address, nonce))]
}

/// Returns the network interface that has `address`.
pub(super) fn netdev_of(address: Ipv4Addr) -> io::Result<String> {
    if address.is_loopback() {
        // The loopback interface answers all of 127.0.0.0/8, listed or not.
        return Ok("lo".to_owned());
    }
    let found = interface_addresses()?.into_iter().find(|(_, own)| *own == address);
    found.map(|(name, _)| name).ok_or_else(|| io::Error::from_raw_os_error(libc::EADDRNOTAVAIL))
}

/// Lists the network interfaces of this network namespace with their IPv4 addresses, in the kernel's order.
///
/// Give one of them to [`SoftOptions::address`](super::SoftOptions::address). See `getifaddrs(3)`.
///
/// ```
/// assert!(rdma_core::interface_addresses()?.iter().any(|(name, address)| name == "lo" && address.is_loopback()));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// The error of `getifaddrs(3)`: the kernel has no memory or the process no descriptors left.
#[doc(alias = "getifaddrs")]
pub fn interface_addresses() -> io::Result<Vec<(String, Ipv4Addr)>> {
    let mut head = std::ptr::null_mut();
    // SAFETY: `head` is a variable of ours, so the call may write the head of its list there.
    if unsafe { libc::getifaddrs(&mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = head;
    while !next.is_null() {
        // SAFETY: `next` is a non-null node of the list, which is freed only below.
        let node = unsafe { &*next };
        next = node.ifa_next;
        // SAFETY: the address was checked for null, and `getifaddrs` gives only valid ones, so its family can be read.
        let is_v4 =
            !node.ifa_addr.is_null() && i32::from(unsafe { (*node.ifa_addr).sa_family }) == libc::AF_INET;
        if is_v4 {
            // SAFETY: an address of family AF_INET is a `sockaddr_in`; the read is unaligned, because C does not
            // promise its alignment.
            let addr = unsafe { node.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            // SAFETY: `getifaddrs` gives each node a C string as its name, which lives until the list is freed below,
            // so it may be read here.
            let name = unsafe { CStr::from_ptr(node.ifa_name) }.to_string_lossy().into_owned();
            found.push((name, Ipv4Addr::from(u32::from_be(addr.sin_addr.s_addr))));
        }
    }
    // SAFETY: `head` came from `getifaddrs` and is freed only here; `found` has copies, so nothing of the list is used
    // afterwards.
    unsafe { libc::freeifaddrs(head) };
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_holds_the_address_of_its_device() {
        let address = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 1), 18515);
        let gid = routable(address, 0x0102_0304);
        assert_eq!(gid.to_string(), "fd73:6f66:7400:4853:102:304:a09:1");
        assert_eq!(listens_at(gid), Some(address));
        assert_eq!(listens_at(link_local(7)), None);
        assert_eq!(listens_at(routable(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), 7)), None);
        assert_eq!(listens_at(Gid::from(Ipv4Addr::LOCALHOST)), None);
        assert!(link_local(7).is_link_local() && !gid.is_link_local());
    }

    #[test]
    fn an_address_of_no_interface_is_refused() {
        assert_eq!(netdev_of(Ipv4Addr::new(127, 1, 2, 3)).unwrap(), "lo");
        // TEST-NET-1 is nobody's.
        let error = netdev_of(Ipv4Addr::new(192, 0, 2, 1)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL));
    }
}
