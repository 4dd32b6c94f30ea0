//! Limits of a software device and its one port.

use super::engine::message::MESSAGE_BYTES_MAX;
use crate::error::QueryError;
use crate::{
    DeviceAttributes, DeviceDetails, Lid, LinkLayer, Mtu, PortAttributes, PortDetails, PortNum, PortState,
};

/// Queue pairs of one device, at most.
pub(super) const MAX_QP: u32 = 4096;
/// Requests outstanding on one queue, at most.
pub(super) const MAX_QP_WR: u32 = 16384;
/// Entries of one completion queue, at most.
pub(super) const MAX_CQE: u32 = 1 << 20;
/// Registrations of one device, at most.
pub(super) const MAX_MR: u32 = 1 << 16;
/// Low bits of a key, which no two registrations of a device share: mapped peers index their table of keys by them. 17
/// bits: twice [`MAX_MR`] slots, so that a free one is drawn soon.
pub(super) const KEY_PLACE_BITS: u32 = 17;
/// Bytes of one registration, at most, unless [`SoftOptions::max_mr_size`](super::SoftOptions::max_mr_size) is lower.
pub(super) const MAX_MR_SIZE: u64 = isize::MAX as u64;
/// Reads outstanding on one queue pair, at most.
pub(super) const MAX_QP_RD_ATOM: u8 = 16;
/// Inline bytes of one request, at most.
pub(super) const MAX_INLINE_DATA: u32 = 1024;

pub(super) fn device_attributes(max_mr_size: u64) -> DeviceAttributes {
    DeviceAttributes {
        firmware: String::new(),
        vendor_id: 0,
        vendor_part_id: 0,
        ports: 1,
        max_qp: MAX_QP,
        max_qp_wr: MAX_QP_WR,
        max_cqe: MAX_CQE,
        max_mr: MAX_MR,
        max_mr_size,
        max_qp_rd_atom: MAX_QP_RD_ATOM,
    }
}

pub(super) fn port_attributes(state: PortState) -> PortAttributes {
    PortAttributes {
        port: PortNum(1),
        state,
        link_layer: LinkLayer::ETHERNET,
        active_mtu: Mtu::MTU_4096,
        max_mtu: Mtu::MTU_4096,
        lid: Lid(0),
        gid_table_len: 2,
        max_msg_size: MESSAGE_BYTES_MAX,
    }
}

/// Returns all attributes; those of properties that the device does not have are 0.
pub(super) fn device_details(attributes: DeviceAttributes) -> DeviceDetails {
    DeviceDetails {
        attributes,
        node_guid: 0,
        sys_image_guid: 0,
        hw_ver: 0,
        page_size_cap: 0xffff_f000,
        device_cap_flags: 0,
        max_sge: 1,
        max_sge_rd: 1,
        max_cq: 0,
        max_pd: 0,
        max_ee_rd_atom: 0,
        max_res_rd_atom: 0,
        max_qp_init_rd_atom: i32::from(MAX_QP_RD_ATOM),
        max_ee_init_rd_atom: 0,
        atomic_cap: 0,
        max_ee: 0,
        max_rdd: 0,
        max_mw: 0,
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: 0,
        max_mcast_qp_attach: 0,
        max_total_mcast_qp_attach: 0,
        max_ah: 0,
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: 0,
        max_srq_wr: 0,
        max_srq_sge: 0,
        max_pkeys: 0,
        local_ca_ack_delay: 0,
        comp_vectors: 1,
        odp_general: 0,
        odp_rc: 0,
        odp_uc: 0,
        odp_ud: 0,
        odp_xrc: 0,
        completion_timestamp_mask: 0,
        hca_core_clock: 0,
        raw_packet_caps: 0,
        device_cap_flags_ex: 0,
        tso_max: 0,
        tso_qp_types: 0,
        rss_qp_types: 0,
        rss_max_tables: 0,
        rss_max_table_size: 0,
        rss_hash_functions: 0,
        rss_hash_fields: 0,
        max_wq_type_rq: 0,
        pacing_min_kbps: 0,
        pacing_max_kbps: 0,
        pacing_qp_types: 0,
        tag_max_header: 0,
        tag_max_tags: 0,
        tag_flags: 0,
        tag_max_ops: 0,
        tag_max_sge: 0,
        moderation_max_count: 0,
        moderation_max_us: 0,
        max_dm_size: 0,
    }
}

/// Returns all attributes of a port, which has no subnet and no physical link.
pub(super) fn port_details(attributes: PortAttributes) -> PortDetails {
    PortDetails {
        attributes,
        sm_lid: 0,
        lmc: 0,
        cap_flags: 0,
        cap_flags2: 0,
        max_vl_num: 1,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        sm_sl: 0,
        pkey_tbl_len: 1,
        subnet_timeout: 0,
        init_type_reply: 0,
        active_width: 0,
        active_speed: 0,
        phys_state: 0,
    }
}

/// Checks a port number: the device has port 1 alone.
pub(super) fn check_port(device: &str, port: PortNum) -> Result<(), QueryError> {
    if port == PortNum(1) {
        Ok(())
    } else {
        Err(QueryError::NoSuchPort { device: device.to_owned(), port: port.0, ports: 1 })
    }
}
