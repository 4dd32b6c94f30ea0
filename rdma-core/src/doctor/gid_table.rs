//! GID table of a port, with the holes that it may have.

use std::net::Ipv6Addr;
use std::path::Path;

use super::tree;
use crate::memory::pinning::{NotKnown, Quoted, Reading, read_as};
use crate::{Gid, GidType, LinkLayer};

/// The GID table of a port: its filled entries, by index.
///
/// A part of [`Port`](super::Port).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidTable {
    /// The number of entries, empty ones too: 1 more than the highest index.
    pub len: u32,
    /// The filled entries, by index.
    pub rows: Vec<GidRow>,
    /// The entries that could not be read.
    pub unread: Vec<(u32, NotKnown)>,
    /// The filled entries of Ethernet whose type or interface could not be read; [`rows`](Self::rows) has them, too.
    pub in_doubt: Vec<(u32, NotKnown)>,
}

/// A filled entry of a GID table.
///
/// Unlike a [`GidEntry`](crate::GidEntry) it names an interface of another network namespace too;
/// [`Machine::gid_entries`](super::Machine::gid_entries) leaves such an interface out.
///
/// A part of [`GidTable`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidRow {
    /// The index in the table.
    pub index: u32,
    /// The identifier.
    pub gid: Gid,
    /// The wire format of packets that are sent from it.
    pub kind: GidType,
    /// The network interface, by its name in its own network namespace, where another interface of that name may be.
    pub netdev: Option<String>,
}

impl GidTable {
    pub(super) fn read(port: &Path, link_layer: Option<LinkLayer>) -> Reading<Self> {
        let (gids, types, ndevs) =
            (port.join("gids"), port.join("gid_attrs/types"), port.join("gid_attrs/ndevs"));
        let mut table = Self::default();
        for name in tree::names(&gids)? {
            let Ok(index) = name.parse::<u32>() else { continue };
            table.len = table.len.max(index.saturating_add(1));
            match read_as(&gids.join(&name), parse) {
                Ok(gid) if gid.is_zero() => {}
                Ok(gid) => {
                    let kind = read_as(&types.join(&name), parse_kind);
                    let netdev = tree::word(&ndevs.join(&name));
                    // On InfiniBand both files may refuse to be read.
                    if link_layer == Some(LinkLayer::ETHERNET)
                        && let Some(unknown) = kind.as_ref().err().or(netdev.as_ref().err())
                    {
                        table.in_doubt.push((index, unknown.clone()));
                    }
                    let kind = match kind {
                        Ok(GidType::ROCE_V2) => GidType::ROCE_V2,
                        _ if link_layer == Some(LinkLayer::ETHERNET) => GidType::ROCE_V1,
                        _ => GidType::INFINIBAND,
                    };
                    table.rows.push(GidRow { index, gid, kind, netdev: netdev.ok() });
                }
                Err(unread) => table.unread.push((index, unread)),
            }
        }
        Ok(table)
    }

    /// Returns why not all of the entry at `index` is known.
    pub(super) fn unknown(&self, index: u32) -> Option<&NotKnown> {
        let mut entries = self.unread.iter().chain(&self.in_doubt);
        entries.find(|(unknown, _)| *unknown == index).map(|(_, unknown)| unknown)
    }

    /// Returns the filled entry at `index`.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<&GidRow> {
        self.rows.iter().find(|row| row.index == index)
    }
}

/// Parses eight groups of four digits: the long form of an IPv6 address.
fn parse(text: &str) -> Result<Gid, String> {
    let text = text.trim();
    text.parse::<Ipv6Addr>().map(Gid::from).map_err(|_| format!("{} is no GID", Quoted(text)))
}

/// Parses the type of an entry. The kernel prints `IB/RoCE v1` for two types, which the link layer tells apart.
fn parse_kind(text: &str) -> Result<GidType, String> {
    match text.trim() {
        "RoCE v2" => Ok(GidType::ROCE_V2),
        "IB/RoCE v1" => Ok(GidType::ROCE_V1),
        other => Err(format!("{} is no type of a GID", Quoted(other))),
    }
}
