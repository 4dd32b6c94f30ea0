//! Columns, and each line that only some devices have.

use rdma_core::{DeviceDetails, Gid, GidType, LinkLayer, PortDetails, SoftOptions};

use super::*;

/// The details of the software device, to be changed into those of another.
fn details() -> (DeviceDetails, PortDetails) {
    let context = Device::soft(SoftOptions::default()).open().unwrap();
    (context.details().unwrap(), context.port_details(PortNum(1)).unwrap())
}

fn offloads(change: impl FnOnce(&mut DeviceDetails)) -> String {
    let (mut device, _) = details();
    change(&mut device);
    let mut sheet = Sheet::default();
    device::offloads(&mut sheet, &device);
    sheet.as_text().to_owned()
}

fn limits(change: impl FnOnce(&mut DeviceDetails)) -> String {
    let (mut device, _) = details();
    change(&mut device);
    let mut sheet = Sheet::default();
    device::limits(&mut sheet, &device);
    sheet.as_text().to_owned()
}

/// Checks that a text has all of these lines, one behind the other.
fn has(text: &str, lines: &[&str]) {
    let wanted: String = lines.iter().map(|line| format!("{line}\n")).collect();
    assert!(text.contains(&wanted), "no {wanted:?} in {text}");
}

#[test]
fn values_stand_in_one_column_behind_tabs() {
    for (name, tabs) in [("max_qp", 4), ("fw_ver", 4), ("max_ops", 3), ("max_total_mcast_qp_attach", 1)] {
        assert_eq!(in_column(name, TAB, COLUMNS[0]), format!("{name}:{}", "\t".repeat(tabs)));
    }
    for (name, tabs) in [("state", 3), ("max_mtu", 2), ("port_cap_flags", 2), ("port_cap_flags2", 1)] {
        assert_eq!(in_column(name, 3 * TAB, COLUMNS[1]), format!("{name}:{}", "\t".repeat(tabs)));
    }
}

#[test]
fn flags_without_a_word_are_printed_in_hexadecimal() {
    let text = limits(|all| all.device_cap_flags = 1 << 31 | 1 << 29 | 1 << 15 | 1);
    has(
        &text,
        &[
            "\tdevice_cap_flags:\t\t0xa0008001",
            "\t\t\t\t\tRESIZE_MAX_WR",
            "\t\t\t\t\tMANAGED_FLOW_STEERING",
            "\t\t\t\t\tUnknown flags: 0x80008000",
            "\tmax_sge:\t\t\t1",
        ],
    );
    let text = offloads(|all| all.device_cap_flags_ex = 1 << 36 | 1 << 50 | 0xffff);
    has(
        &text,
        &[
            "\tdevice_cap_flags_ex:\t\t0x400100000FFFF",
            "\t\t\t\t\tPCI_WRITE_END_PADDING",
            "\t\t\t\t\tUnknown flags: 0x4000000000000",
            "\ttso_caps:",
        ],
    );
}

#[test]
fn limits_of_absent_objects_are_left_out() {
    let text = limits(|all| all.max_srq = 8);
    has(&text, &["\tmax_fmr:\t\t\t0", "\tmax_srq:\t\t\t8", "\tmax_srq_wr:\t\t\t0", "\tmax_srq_sge:\t\t\t0"]);
    let text = limits(|all| (all.max_fmr, all.max_map_per_fmr, all.atomic_cap) = (1, 2, 7));
    has(&text, &["\tmax_fmr:\t\t\t1", "\tmax_map_per_fmr:\t\t2", "\tmax_srq:\t\t\t0", "\tmax_pkeys:\t\t\t0"]);
    has(&text, &["\tatomic_cap:\t\t\tinvalid atomic capability (7)"]);
}

#[test]
fn offloads_of_a_nic_have_their_lines() {
    let text = offloads(|all| {
        (all.odp_general, all.odp_rc, all.odp_xrc) = (3, 0b1_0001_1001, 0b10_0000);
        (all.completion_timestamp_mask, all.hca_core_clock) = (0x7fff_ffff_ffff_ffff, 156_250);
        all.raw_packet_caps = 0b1011;
        (all.tso_max, all.tso_qp_types) = (262_144, 1 << 8);
        (all.rss_max_tables, all.rss_max_table_size, all.rss_qp_types) = (1_048_576, 2048, 1 << 8 | 1 << 9);
        (all.rss_hash_functions, all.rss_hash_fields) = (1, 0x8000_00ff);
        (all.pacing_min_kbps, all.pacing_max_kbps, all.pacing_qp_types) = (1, 200_000_000, 1 << 8 | 1 << 2);
        (all.tag_max_header, all.tag_max_tags, all.tag_flags) = (64, 127, 1);
        (all.tag_max_ops, all.tag_max_sge) = (32768, 1);
        (all.moderation_max_count, all.moderation_max_us) = (65535, 4095);
        all.max_dm_size = 131_072;
    });
    let at = |bit: &str| format!("\t\t\t\t\t{bit}\n");
    let wanted = [
        "\tgeneral_odp_caps:\n".to_owned(),
        at("ODP_SUPPORT"),
        at("ODP_SUPPORT_IMPLICIT"),
        "\trc_odp_caps:\n".to_owned(),
        ["SUPPORT_SEND", "SUPPORT_READ", "SUPPORT_ATOMIC", "Unknown flags: 0x100"].map(at).concat(),
        format!("\tuc_odp_caps:\n{0}\tud_odp_caps:\n{0}\txrc_odp_caps:\n", at("NO SUPPORT")),
        at("SUPPORT_SRQ"),
        "\tcompletion timestamp_mask:\t\t\t0x7fffffffffffffff\n\thca_core_clock:\t\t\t156250kHZ\n".to_owned(),
        "\traw packet caps:\n".to_owned(),
        ["C-VLAN stripping offload", "Scatter FCS offload", "Delay drop"].map(at).concat(),
        "\tdevice_cap_flags_ex:\t\t0x0\n".to_owned(),
        format!("\ttso_caps:\n\t\tmax_tso:\t\t\t262144\n\t\tsupported_qp:\n{}", at("SUPPORT_RAW_PACKET")),
        "\trss_caps:\n\t\tmax_rwq_indirection_tables:\t\t\t1048576\n".to_owned(),
        "\t\tmax_rwq_indirection_table_size:\t\t\t2048\n\t\trx_hash_function:\t\t\t\t0x1\n".to_owned(),
        "\t\trx_hash_fields_mask:\t\t\t\t0x800000FF\n\t\tsupported_qp:\n".to_owned(),
        ["SUPPORT_RAW_PACKET", "Unknown flags: 0x200"].map(at).concat(),
        "\tmax_wq_type_rq:\t\t\t0\n\tpacket_pacing_caps:\n".to_owned(),
        "\t\tqp_rate_limit_min:\t1kbps\n\t\tqp_rate_limit_max:\t200000000kbps\n\t\tsupported_qp:\n"
            .to_owned(),
        ["SUPPORT_RAW_PACKET", "SUPPORT_RC"].map(at).concat(),
        "\tmax_rndv_hdr_size:\t\t64\n\tmax_num_tags:\t\t\t127\n\tmax_ops:\t\t\t32768\n".to_owned(),
        format!("\tmax_sge:\t\t\t1\n\tflags:\n{}", at("IBV_TM_CAP_RC")),
        "\n\tcq moderation caps:\n\t\tmax_cq_count:\t65535\n\t\tmax_cq_period:\t4095 us\n\n".to_owned(),
        "\tmaximum available device memory:\t131072Bytes\n\n\tnum_comp_vectors:\t\t1\n".to_owned(),
    ];
    assert_eq!(text, wanted.concat());
}

#[test]
fn gids_of_each_type_have_their_form() {
    let mut sheet = Sheet::default();
    let local = Gid::from("fe80::1".parse::<std::net::Ipv6Addr>().unwrap());
    let prefix = Gid::from("fe80::".parse::<std::net::Ipv6Addr>().unwrap());
    let rows = [
        (0, local, GidType::INFINIBAND),
        (1, prefix, GidType::INFINIBAND),
        (10, local, GidType::ROCE_V1),
        (255, Gid::from(std::net::Ipv4Addr::new(10, 9, 0, 1)), GidType::ROCE_V2),
    ];
    port::gids(&mut sheet, rows.into_iter());
    let long = "fe80:0000:0000:0000:0000:0000:0000:0001";
    assert_eq!(
        sheet.as_text(),
        format!(
            "\t\t\tGID[  0]:\t\t{long}\n\t\t\tGID[ 10]:\t\t{long}, RoCE v1\n\t\t\tGID[255]:\t\t::ffff:10.9.0.1, RoCE v2\n"
        )
    );
}

#[test]
fn codes_of_a_port_have_their_words() {
    let (_, mut all) = details();
    (all.active_width, all.active_speed, all.phys_state, all.max_vl_num) = (2, 128, 4, 3);
    let mut sheet = Sheet::default();
    port::more(&mut sheet, &all, true);
    has(
        sheet.as_text(),
        &[
            "\t\t\tactive_width:\t\t4X (2)",
            "\t\t\tactive_speed:\t\t100.0 Gbps (128)",
            "\t\t\tphys_state:\t\tPORT_CONFIGURATION TRAINNING (4)",
        ],
    );
    has(sheet.as_text(), &["\t\t\tmax_vl_num:\t\t4 (3)"]);
    let mut of_efa = Sheet::default();
    port::more(&mut of_efa, &all, false);
    assert!(!of_efa.as_text().contains("phys_state"), "{}", of_efa.as_text());
}

#[test]
fn a_port_of_efa_has_no_link_layer() {
    let (_, mut all) = details();
    all.attributes.link_layer = LinkLayer(0);
    let mut sheet = Sheet::default();
    port::head(&mut sheet, &port::Head::of(&all));
    has(sheet.as_text(), &["\t\t\tlink_layer:\t\tUnspecified"]);
}
