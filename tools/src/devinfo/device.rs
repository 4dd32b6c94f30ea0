//! The lines of a device.

use rdma_core::DeviceDetails;
use rdma_core::doctor::RdmaDevice;

use super::codes::{self, Flags};
use super::of_a_device;
use crate::sheet::Sheet;
use crate::source;

/// Lines of every device. `None` is left out, because sysfs has no such file.
pub struct Head<'a> {
    pub name: &'a str,
    pub node_type: Option<u32>,
    pub firmware: Option<&'a str>,
    pub node_guid: Option<u64>,
    pub sys_image_guid: Option<u64>,
    pub vendor_id: Option<u32>,
    pub vendor_part_id: Option<u32>,
    pub hw_ver: Option<u32>,
    pub board_id: Option<&'a str>,
    pub ports: usize,
}

impl<'a> Head<'a> {
    /// The lines of a device that answers; `in_sysfs` has the two that no query returns.
    pub fn of(details: &'a DeviceDetails, name: &'a str, in_sysfs: Option<&'a RdmaDevice>) -> Self {
        let attributes = &details.attributes;
        Self {
            name,
            // The software device is a channel adapter, too.
            node_type: Some(
                in_sysfs.map_or(1, |device| device.node_type.as_ref().map_or(0, |kind| kind.code)),
            ),
            firmware: Some(&attributes.firmware),
            node_guid: Some(details.node_guid),
            sys_image_guid: Some(details.sys_image_guid),
            vendor_id: Some(attributes.vendor_id),
            vendor_part_id: Some(attributes.vendor_part_id),
            hw_ver: Some(details.hw_ver),
            board_id: in_sysfs.and_then(|device| device.board_id.as_deref().ok()),
            ports: attributes.ports.into(),
        }
    }

    /// The lines of a device that only sysfs shows.
    pub fn in_sysfs(device: &'a RdmaDevice) -> Self {
        let guid = |text: &'a Result<String, _>| text.as_deref().ok().and_then(source::guid);
        Self {
            name: &device.name,
            node_type: device.node_type.as_ref().ok().map(|kind| kind.code),
            firmware: device.fw_ver.as_deref().ok(),
            node_guid: guid(&device.node_guid),
            sys_image_guid: guid(&device.sys_image_guid),
            vendor_id: device.vendor.as_ref().ok().copied(),
            vendor_part_id: device.part.as_ref().ok().copied(),
            hw_ver: device.hw_rev.as_deref().ok().and_then(revision),
            board_id: device.board_id.as_deref().ok(),
            ports: device.ports.as_ref().map_or(0, Vec::len),
        }
    }

    /// Returns whether the C tools call its transport InfiniBand, as they do that of RoCE.
    pub fn is_infiniband(&self) -> bool {
        matches!(self.node_type, Some(1..=3))
    }
}

/// Parses `0`, or `0x0`.
fn revision(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

pub fn head(sheet: &mut Sheet, head: &Head<'_>) {
    sheet.field("hca_id", head.name, format!("hca_id:\t{}\n", head.name));
    if let Some(node_type) = head.node_type {
        let known = codes::TRANSPORTS.iter().find(|(known, _)| *known == node_type);
        let (code, word) = known.map_or((-1, "invalid transport"), |(_, transport)| *transport);
        of_a_device(sheet, "transport", word, &format!("{word} ({code})"));
    }
    if let Some(firmware) = head.firmware.filter(|firmware| !firmware.is_empty()) {
        of_a_device(sheet, "fw_ver", firmware, firmware);
    }
    for (name, guid) in [("node_guid", head.node_guid), ("sys_image_guid", head.sys_image_guid)] {
        if let Some(guid) = guid.map(grouped) {
            of_a_device(sheet, name, guid.as_str(), &guid);
        }
    }
    if let Some(vendor) = head.vendor_id {
        of_a_device(sheet, "vendor_id", vendor, &format!("0x{vendor:04x}"));
    }
    if let Some(part) = head.vendor_part_id {
        // C prints it as a signed number.
        of_a_device(sheet, "vendor_part_id", part, &part.cast_signed().to_string());
    }
    if let Some(revision) = head.hw_ver {
        of_a_device(sheet, "hw_ver", revision, &format!("0x{revision:X}"));
    }
    if let Some(board) = head.board_id {
        of_a_device(sheet, "board_id", board, board);
    }
    number(sheet, "phys_port_cnt", head.ports);
}

/// Prints `7c8c:0903:00c3:cfee`.
fn grouped(guid: u64) -> String {
    let [a, b, c, d] = [48, 32, 16, 0].map(|shift| guid >> shift & 0xffff);
    format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}")
}

fn number(sheet: &mut Sheet, name: &'static str, value: impl Into<serde_json::Value> + ToString) {
    let text = value.to_string();
    of_a_device(sheet, name, value, &text);
}

/// Adds the words of the bits that are set, each in a line, and the bits without a word.
fn flags(sheet: &mut Sheet, name: &'static str, words: Flags, bits: u64) {
    let (mut set, unknown) = codes::split(words, bits);
    let unknown = (unknown != 0).then(|| format!("Unknown flags: 0x{unknown:X}"));
    set.extend(unknown.as_deref());
    let text: String = set.iter().map(|word| format!("\t\t\t\t\t{word}\n")).collect();
    sheet.field(name, set, text);
}

/// Lines of `-v` up to the delay of acknowledgements.
pub fn limits(sheet: &mut Sheet, all: &DeviceDetails) {
    let plain = &all.attributes;
    of_a_device(sheet, "max_mr_size", plain.max_mr_size, &format!("0x{:x}", plain.max_mr_size));
    of_a_device(sheet, "page_size_cap", all.page_size_cap, &format!("0x{:x}", all.page_size_cap));
    number(sheet, "max_qp", plain.max_qp);
    number(sheet, "max_qp_wr", plain.max_qp_wr);
    of_a_device(sheet, "device_cap_flags", all.device_cap_flags, &format!("0x{:08x}", all.device_cap_flags));
    flags(sheet, "device_caps", codes::DEVICE_CAPS, all.device_cap_flags.into());
    number(sheet, "max_sge", all.max_sge);
    number(sheet, "max_sge_rd", all.max_sge_rd);
    number(sheet, "max_cq", all.max_cq);
    number(sheet, "max_cqe", plain.max_cqe);
    number(sheet, "max_mr", plain.max_mr);
    number(sheet, "max_pd", all.max_pd);
    number(sheet, "max_qp_rd_atom", plain.max_qp_rd_atom);
    number(sheet, "max_ee_rd_atom", all.max_ee_rd_atom);
    number(sheet, "max_res_rd_atom", all.max_res_rd_atom);
    number(sheet, "max_qp_init_rd_atom", all.max_qp_init_rd_atom);
    number(sheet, "max_ee_init_rd_atom", all.max_ee_init_rd_atom);
    let atomics = codes::word(codes::ATOMICS, all.atomic_cap, "invalid atomic capability");
    of_a_device(sheet, "atomic_cap", atomics, &format!("{atomics} ({})", all.atomic_cap));
    number(sheet, "max_ee", all.max_ee);
    number(sheet, "max_rdd", all.max_rdd);
    number(sheet, "max_mw", all.max_mw);
    number(sheet, "max_raw_ipv6_qp", all.max_raw_ipv6_qp);
    number(sheet, "max_raw_ethy_qp", all.max_raw_ethy_qp);
    number(sheet, "max_mcast_grp", all.max_mcast_grp);
    number(sheet, "max_mcast_qp_attach", all.max_mcast_qp_attach);
    number(sheet, "max_total_mcast_qp_attach", all.max_total_mcast_qp_attach);
    number(sheet, "max_ah", all.max_ah);
    number(sheet, "max_fmr", all.max_fmr);
    if all.max_fmr != 0 {
        number(sheet, "max_map_per_fmr", all.max_map_per_fmr);
    }
    number(sheet, "max_srq", all.max_srq);
    if all.max_srq != 0 {
        number(sheet, "max_srq_wr", all.max_srq_wr);
        number(sheet, "max_srq_sge", all.max_srq_sge);
    }
    number(sheet, "max_pkeys", all.max_pkeys);
    number(sheet, "local_ca_ack_delay", all.local_ca_ack_delay);
}

/// Lines of `-v` from on-demand paging on.
pub fn offloads(sheet: &mut Sheet, all: &DeviceDetails) {
    sheet.text("\tgeneral_odp_caps:\n");
    flags(sheet, "general_odp_caps", codes::ODP, all.odp_general);
    for (name, caps) in [
        ("rc_odp_caps", all.odp_rc),
        ("uc_odp_caps", all.odp_uc),
        ("ud_odp_caps", all.odp_ud),
        ("xrc_odp_caps", all.odp_xrc),
    ] {
        sheet.text(format_args!("\t{name}:\n"));
        if caps == 0 {
            sheet.text("\t\t\t\t\tNO SUPPORT\n");
        }
        flags(sheet, name, codes::ODP_OPERATIONS, caps.into());
    }
    let mask = all.completion_timestamp_mask;
    sheet.field(
        "completion_timestamp_mask",
        mask,
        match mask {
            0 => "\tcompletion_timestamp_mask not supported\n".to_owned(),
            mask => format!("\tcompletion timestamp_mask:\t\t\t0x{mask:016x}\n"),
        },
    );
    let clock = all.hca_core_clock;
    match clock {
        0 => sheet.field("hca_core_clock", 0, "\tcore clock not supported\n"),
        clock => of_a_device(sheet, "hca_core_clock", clock, &format!("{clock}kHZ")),
    }
    if all.raw_packet_caps != 0 {
        sheet.text("\traw packet caps:\n");
        let (words, _) = codes::split(codes::RAW_PACKETS, all.raw_packet_caps.into());
        let lines: String = words.iter().map(|word| format!("\t\t\t\t\t{word}\n")).collect();
        sheet.field("raw_packet_caps", words, lines);
    }
    of_a_device(
        sheet,
        "device_cap_flags_ex",
        all.device_cap_flags_ex,
        &format!("0x{:X}", all.device_cap_flags_ex),
    );
    flags(sheet, "device_caps_ex", codes::DEVICE_CAPS_EX, all.device_cap_flags_ex & !u64::from(u32::MAX));
    queue_pair_offloads(sheet, all);
    if all.max_dm_size != 0 {
        let text = format!("\tmaximum available device memory:\t{}Bytes\n\n", all.max_dm_size);
        sheet.field("max_dm_size", all.max_dm_size, text);
    }
    number(sheet, "num_comp_vectors", all.comp_vectors);
}

/// Segmentation, scaling, pacing, tag matching and moderation.
fn queue_pair_offloads(sheet: &mut Sheet, all: &DeviceDetails) {
    let supported = "\t\tsupported_qp:\n";
    sheet.field("max_tso", all.tso_max, format!("\ttso_caps:\n\t\tmax_tso:\t\t\t{}\n", all.tso_max));
    if all.tso_max != 0 {
        sheet.text(supported);
        flags(sheet, "tso_qp_types", codes::QP_TYPES, all.tso_qp_types.into());
    }
    let tables = all.rss_max_tables;
    let text = format!("\trss_caps:\n\t\tmax_rwq_indirection_tables:\t\t\t{tables}\n");
    sheet.field("max_rwq_indirection_tables", tables, text);
    let size = all.rss_max_table_size;
    sheet.field(
        "max_rwq_indirection_table_size",
        size,
        format!("\t\tmax_rwq_indirection_table_size:\t\t\t{size}\n"),
    );
    let functions = all.rss_hash_functions;
    sheet.field("rx_hash_function", functions, format!("\t\trx_hash_function:\t\t\t\t0x{functions:x}\n"));
    let fields = all.rss_hash_fields;
    sheet.field("rx_hash_fields_mask", fields, format!("\t\trx_hash_fields_mask:\t\t\t\t0x{fields:X}\n"));
    if all.rss_qp_types != 0 {
        sheet.text(supported);
        flags(sheet, "rss_qp_types", codes::QP_TYPES, all.rss_qp_types.into());
    }
    number(sheet, "max_wq_type_rq", all.max_wq_type_rq);
    let [min, max] = [all.pacing_min_kbps, all.pacing_max_kbps];
    sheet.field(
        "qp_rate_limit_min",
        min,
        format!("\tpacket_pacing_caps:\n\t\tqp_rate_limit_min:\t{min}kbps\n"),
    );
    sheet.field("qp_rate_limit_max", max, format!("\t\tqp_rate_limit_max:\t{max}kbps\n"));
    if max != 0 {
        sheet.text(supported);
        flags(sheet, "pacing_qp_types", codes::PACED_QP_TYPES, all.pacing_qp_types.into());
    }
    tags(sheet, all);
    let [count, period] = [all.moderation_max_count, all.moderation_max_us];
    if count != 0 && period != 0 {
        sheet.field("max_cq_count", count, format!("\n\tcq moderation caps:\n\t\tmax_cq_count:\t{count}\n"));
        sheet.field("max_cq_period", period, format!("\t\tmax_cq_period:\t{period} us\n\n"));
    }
}

fn tags(sheet: &mut Sheet, all: &DeviceDetails) {
    if all.tag_max_tags == 0 {
        return sheet.field("max_num_tags", 0, "\ttag matching not supported\n");
    }
    number(sheet, "max_rndv_hdr_size", all.tag_max_header);
    number(sheet, "max_num_tags", all.tag_max_tags);
    number(sheet, "max_ops", all.tag_max_ops);
    // The C program names it as the segments of a work request are named.
    sheet.field("tag_max_sge", all.tag_max_sge, format!("\tmax_sge:\t\t\t{}\n", all.tag_max_sge));
    sheet.text("\tflags:\n");
    let (words, _) = codes::split(codes::TAGS, all.tag_flags.into());
    let lines: String = words.iter().map(|word| format!("\t\t\t\t\t{word}\n")).collect();
    sheet.field("tag_flags", words, lines);
}
