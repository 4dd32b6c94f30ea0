//! [`choose`], a pure function from a GID table to the entry to use. Reading the table is left to
//! [`Context::gids`](crate::Context::gids).

use std::fmt;

use crate::error::{GidRejection, NoUsableGid};
use crate::{GidEntry, GidType, LinkLayer, PortNum};

/// The family of the address inside a GID.
///
/// A part of [`Preference`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressFamily {
    /// IPv4, mapped into IPv6 (`::ffff:0:0/96`).
    V4,
    /// IPv6.
    V6,
}

/// Requirements on the GID to choose.
///
/// The argument of [`choose`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preference {
    /// The type; `None` takes RoCE v2 on Ethernet and any type on InfiniBand.
    pub kind: Option<GidType>,
    /// The address family; `None` takes either one and prefers IPv4.
    pub family: Option<AddressFamily>,
    /// The kind of network that the port is attached to.
    pub link_layer: LinkLayer,
}

impl Preference {
    /// Returns the usual requirements for a port on `link_layer`.
    #[must_use]
    pub fn new(link_layer: LinkLayer) -> Self {
        Self { kind: None, family: None, link_layer }
    }
}

/// The chosen entry, with the reason why each other entry was rejected. `Display` prints both.
///
/// Returned by [`choose`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The entry to use.
    pub entry: GidEntry,
    /// The other entries in table order, each with its reason.
    pub rejected: Vec<(GidEntry, GidRejection)>,
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GID {} {} ({})", self.entry.index, self.entry.gid, self.entry.kind)?;
        for (entry, why) in &self.rejected {
            write!(f, "; not {} {} ({}): {why}", entry.index, entry.gid, entry.kind)?;
        }
        Ok(())
    }
}

/// Picks the GID to send from.
///
/// An entry must have the right type, and its interface must be in this network namespace, otherwise packets
/// leave by nobody's interface. Among those, a routable address wins (IPv4-mapped before global IPv6). A
/// link-local entry is taken only when there is no other one.
///
/// ```
/// use rdma_core::{Device, PortNum, SoftOptions, gid};
/// let context = Device::soft(SoftOptions::default()).open()?;
/// let port = context.port(PortNum(1))?;
/// let preference = gid::Preference::new(port.link_layer);
/// let chosen = gid::choose(port.port, &context.gids(port.port)?, &preference)?;
/// assert!(!chosen.entry.gid.is_zero());
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Errors
///
/// [`NoUsableGid`], with every entry and the reason why it was rejected.
pub fn choose(port: PortNum, table: &[GidEntry], preference: &Preference) -> Result<Chosen, NoUsableGid> {
    let ranked: Vec<_> = table.iter().map(|entry| (entry, rank(entry, preference))).collect();
    let best = ranked.iter().filter_map(|(entry, rank)| rank.ok().map(|rank| (rank, entry.index))).min();
    let mut entry = None;
    let mut rejected = Vec::new();
    for (candidate, rank) in ranked {
        match rank {
            Err(why) => rejected.push((candidate.clone(), why)),
            Ok(rank) if best == Some((rank, candidate.index)) && entry.is_none() => {
                entry = Some(candidate.clone())
            }
            Ok(_) if candidate.gid.is_link_local() => {
                rejected.push((candidate.clone(), GidRejection::LinkLocal))
            }
            Ok(_) => rejected.push((candidate.clone(), GidRejection::RankedLower)),
        }
    }
    match entry {
        Some(entry) => Ok(Chosen { entry, rejected }),
        None => Err(NoUsableGid { port, rejected }),
    }
}

/// Ranks an entry; the smallest rank is taken.
fn rank(entry: &GidEntry, preference: &Preference) -> Result<u8, GidRejection> {
    let ethernet = preference.link_layer == LinkLayer::ETHERNET;
    let kind = preference.kind.or(ethernet.then_some(GidType::ROCE_V2));
    if kind.is_some_and(|kind| kind != entry.kind) {
        return Err(GidRejection::WrongType);
    }
    let family = if entry.gid.ipv4_mapped().is_some() { AddressFamily::V4 } else { AddressFamily::V6 };
    if preference.family.is_some_and(|wanted| wanted != family) {
        return Err(GidRejection::WrongFamily);
    }
    if ethernet && entry.netdev.is_none() {
        return Err(GidRejection::NoNetdev);
    }
    Ok(match family {
        AddressFamily::V4 => 0,
        AddressFamily::V6 if !entry.gid.is_link_local() => 1,
        // Rank 2 is not a rejection, because on InfiniBand the default GID carries the link-local prefix
        // fe80::/64.
        AddressFamily::V6 => 2,
    })
}

#[cfg(test)]
mod tests;
