//! Ports of a device: state, addresses, rate and counters.

use std::path::{Path, PathBuf};

use super::gid_table::GidTable;
use super::tree;
use crate::memory::pinning::{NotKnown, Quoted, Reading, parse_number, read_as};
use crate::{LinkLayer, PortNum, PortState};

/// A port of a device, as sysfs shows it.
///
/// A part of [`RdmaDevice`](super::RdmaDevice).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Port {
    /// The number of the port, from 1.
    pub number: PortNum,
    /// The folder in sysfs, `…/ports/1`.
    pub folder: PathBuf,
    /// The logical state (`state`), such as `4: ACTIVE`.
    pub state: Reading<Numbered>,
    /// The state of the link (`phys_state`), such as `5: LinkUp`.
    pub phys_state: Reading<Numbered>,
    /// The kind of network (`link_layer`).
    pub link_layer: Reading<LinkLayer>,
    /// The rate in the kernel's words (`rate`), such as `200 Gb/sec (4X HDR)`.
    pub rate: Reading<String>,
    /// The local identifier (`lid`); 0 on Ethernet.
    pub lid: Reading<u32>,
    /// The number of low bits of the LID that are free (`lid_mask_count`).
    pub lmc: Reading<u32>,
    /// The LID of the subnet manager (`sm_lid`); 0 where there is none.
    pub sm_lid: Reading<u32>,
    /// The service level of the subnet manager (`sm_sl`).
    pub sm_sl: Reading<u32>,
    /// The capability mask (`cap_mask`).
    pub cap_mask: Reading<u32>,
    /// The GID table.
    pub gids: Reading<GidTable>,
    /// Counters of `counters` and `hw_counters`, in this order.
    pub counters: Vec<Counter>,
    /// The folders of counters that could not be listed. A driver without counters has neither.
    pub counters_unread: Vec<NotKnown>,
}

/// A number with its name, as the kernel prints it: `4: ACTIVE`.
///
/// A part of [`Port`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Numbered {
    /// The number before the colon.
    pub code: u32,
    /// The name behind the colon.
    pub name: String,
}

/// A counter of a port.
///
/// A part of [`Port`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counter {
    /// The name, such as `packet_seq_err`.
    pub name: String,
    /// The file that holds the value.
    pub file: PathBuf,
    /// The value since the driver was loaded, or since somebody cleared it.
    pub value: Reading<u64>,
}

impl Port {
    pub(super) fn read(number: PortNum, folder: PathBuf) -> Self {
        let file = |name: &str| folder.join(name);
        let link_layer = read_as(&file("link_layer"), parse_link_layer);
        let (mut counters, mut counters_unread) = (Vec::new(), Vec::new());
        for group in ["counters", "hw_counters"] {
            match read_counters(&file(group)) {
                Ok(read) => counters.extend(read),
                Err(unread) => counters_unread.push(unread),
            }
        }
        Self {
            number,
            state: read_as(&file("state"), parse_numbered),
            phys_state: read_as(&file("phys_state"), parse_numbered),
            rate: tree::word(&file("rate")),
            lid: tree::hex(&file("lid")),
            lmc: tree::number(&file("lid_mask_count")),
            sm_lid: tree::hex(&file("sm_lid")),
            sm_sl: tree::number(&file("sm_sl")),
            cap_mask: tree::hex(&file("cap_mask")),
            gids: GidTable::read(&folder, link_layer.as_ref().ok().copied()),
            counters,
            counters_unread,
            link_layer,
            folder,
        }
    }

    /// Returns whether the port carries data; `None` when its state is not known.
    #[must_use]
    pub fn is_active(&self) -> Option<bool> {
        self.state.as_ref().ok().map(|state| PortState(state.code) == PortState::ACTIVE)
    }

    /// Returns the rate in Gbit/s; `None` when it is not known, or not a number.
    #[must_use]
    pub fn gbits(&self) -> Option<f64> {
        self.rate.as_ref().ok()?.split(' ').next()?.parse().ok()
    }

    /// Returns the value of a counter; `None` when the port has no such counter, or its value is not known.
    #[must_use]
    pub fn counter(&self, name: &str) -> Option<u64> {
        let counter = self.counters.iter().find(|counter| counter.name == name)?;
        counter.value.as_ref().ok().copied()
    }
}

/// Reads the counters of a folder; `lifespan` is a setting.
fn read_counters(folder: &Path) -> Reading<Vec<Counter>> {
    let names = tree::names_if_there(folder)?.into_iter().filter(|name| name != "lifespan");
    let counter = |name: String| {
        let file = folder.join(&name);
        Counter { value: tree::number(&file), name, file }
    };
    Ok(names.map(counter).collect())
}

/// Parses `4: ACTIVE`.
pub(super) fn parse_numbered(text: &str) -> Result<Numbered, String> {
    let (code, name) =
        text.trim().split_once(": ").ok_or_else(|| format!("{} is not N: NAME", Quoted(text.trim())))?;
    let code = parse_number(code)?.try_into().map_err(|_| format!("{} is too large", Quoted(code)))?;
    Ok(Numbered { code, name: name.to_owned() })
}

fn parse_link_layer(text: &str) -> Result<LinkLayer, String> {
    match text.trim() {
        "InfiniBand" => Ok(LinkLayer::INFINIBAND),
        "Ethernet" => Ok(LinkLayer::ETHERNET),
        "Unknown" => Ok(LinkLayer(0)), // the kernel's word for it
        other => Err(format!("{} is no link layer", Quoted(other))),
    }
}
