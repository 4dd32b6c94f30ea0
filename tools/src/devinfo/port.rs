//! The lines of a port.

use std::net::Ipv6Addr;

use rdma_core::doctor::Port;
use rdma_core::{Gid, GidType, LinkLayer, Mtu, PortDetails};

use super::codes;
use super::of_a_port;
use crate::gids::long;
use crate::sheet::Sheet;

/// Lines of every port. `None` is left out, because sysfs has no such file.
pub struct Head {
    pub number: u8,
    pub state: Option<u32>,
    pub max_mtu: Option<Mtu>,
    pub active_mtu: Option<Mtu>,
    pub sm_lid: Option<u32>,
    pub lid: Option<u32>,
    pub lmc: Option<u32>,
    pub link_layer: Option<LinkLayer>,
}

impl Head {
    /// The lines of a port that answers.
    pub fn of(details: &PortDetails) -> Self {
        let attributes = &details.attributes;
        Self {
            number: attributes.port.0,
            state: Some(attributes.state.0),
            max_mtu: Some(attributes.max_mtu),
            active_mtu: Some(attributes.active_mtu),
            sm_lid: Some(details.sm_lid.into()),
            lid: Some(attributes.lid.0.into()),
            lmc: Some(details.lmc.into()),
            link_layer: Some(attributes.link_layer),
        }
    }

    /// The lines of a port that only sysfs shows, which has no MTU.
    pub fn in_sysfs(port: &Port) -> Self {
        Self {
            number: port.number.0,
            state: port.state.as_ref().ok().map(|state| state.code),
            max_mtu: None,
            active_mtu: None,
            sm_lid: port.sm_lid.as_ref().ok().copied(),
            lid: port.lid.as_ref().ok().copied(),
            lmc: port.lmc.as_ref().ok().copied(),
            link_layer: port.link_layer.as_ref().ok().copied(),
        }
    }
}

pub fn head(sheet: &mut Sheet, head: &Head) {
    sheet.field("port", head.number, format!("\t\tport:\t{}\n", head.number));
    if let Some(state) = head.state {
        let word = codes::word(codes::STATES, state, "invalid state");
        of_a_port(sheet, "state", word, &format!("{word} ({state})"));
    }
    for (name, mtu) in [("max_mtu", head.max_mtu), ("active_mtu", head.active_mtu)] {
        if let Some(mtu) = mtu {
            let bytes = mtu.bytes().map_or("invalid MTU".to_owned(), |bytes| bytes.to_string());
            of_a_port(sheet, name, mtu.bytes(), &format!("{bytes} ({})", mtu.0));
        }
    }
    for (name, value) in [("sm_lid", head.sm_lid), ("port_lid", head.lid)] {
        if let Some(value) = value {
            of_a_port(sheet, name, value, &value.to_string());
        }
    }
    if let Some(lmc) = head.lmc {
        of_a_port(sheet, "port_lmc", lmc, &format!("0x{lmc:02x}"));
    }
    if let Some(layer) = head.link_layer {
        let word = match layer {
            LinkLayer::INFINIBAND | LinkLayer::ETHERNET => layer.to_string(),
            LinkLayer(0) => "Unspecified".to_owned(), // EFA
            LinkLayer(_) => "Unknown".to_owned(),
        };
        of_a_port(sheet, "link_layer", word.as_str(), &word);
    }
}

/// Lines of `-v` above the GIDs. Only a node of InfiniBand's verbs tells its physical state.
pub fn more(sheet: &mut Sheet, all: &PortDetails, is_infiniband: bool) {
    let plain = &all.attributes;
    of_a_port(sheet, "max_msg_sz", plain.max_msg_size, &format!("0x{:x}", plain.max_msg_size));
    of_a_port(sheet, "port_cap_flags", all.cap_flags, &format!("0x{:08x}", all.cap_flags));
    of_a_port(sheet, "port_cap_flags2", all.cap_flags2, &format!("0x{:04x}", all.cap_flags2));
    let lanes = codes::word(codes::LANES, all.max_vl_num, "invalid value");
    of_a_port(sheet, "max_vl_num", lanes, &format!("{lanes} ({})", all.max_vl_num));
    of_a_port(sheet, "bad_pkey_cntr", all.bad_pkey_cntr, &format!("0x{:x}", all.bad_pkey_cntr));
    of_a_port(sheet, "qkey_viol_cntr", all.qkey_viol_cntr, &format!("0x{:x}", all.qkey_viol_cntr));
    for (name, value) in [
        ("sm_sl", u32::from(all.sm_sl)),
        ("pkey_tbl_len", all.pkey_tbl_len.into()),
        ("gid_tbl_len", plain.gid_table_len),
        ("subnet_timeout", all.subnet_timeout.into()),
        ("init_type_reply", all.init_type_reply.into()),
    ] {
        of_a_port(sheet, name, value, &value.to_string());
    }
    let width = codes::word(codes::WIDTHS, all.active_width, "invalid width");
    of_a_port(sheet, "active_width", width, &format!("{width}X ({})", all.active_width));
    let speed = codes::word(codes::SPEEDS, all.active_speed, "invalid speed");
    of_a_port(sheet, "active_speed", speed, &format!("{speed} ({})", all.active_speed));
    if is_infiniband {
        physical_state(sheet, all.phys_state);
    }
}

pub fn physical_state(sheet: &mut Sheet, state: u8) {
    let word = codes::word(codes::PHYSICAL_STATES, state, "invalid physical state");
    of_a_port(sheet, "phys_state", word, &format!("{word} ({state})"));
}

/// Adds the entries of a GID table. An entry without an identifier behind its prefix is left out.
pub fn gids(sheet: &mut Sheet, rows: impl Iterator<Item = (u32, Gid, GidType)>) {
    let rows = rows.filter(|(_, gid, _)| !gid.0.ends_with(&[0; 8]));
    sheet.sheets("gids", rows.map(|(index, gid, kind)| gid_line(index, gid, kind)).collect());
}

fn gid_line(index: u32, gid: Gid, kind: GidType) -> Sheet {
    let text = if kind == GidType::ROCE_V2 { Ipv6Addr::from(gid.0).to_string() } else { long(gid) };
    let version = if kind == GidType::INFINIBAND { String::new() } else { format!(", {kind}") };
    let mut sheet = Sheet::default();
    sheet.field("index", index, format!("\t\t\tGID[{index:3}]:\t\t"));
    sheet.field("gid", text.as_str(), &text);
    sheet.field("type", kind.to_string(), format!("{version}\n"));
    sheet
}
