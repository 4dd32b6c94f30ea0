//! Everything that a device and its ports report, for tools that print it.
#![expect(unsafe_code, reason = "calls libibverbs")]

use super::port::{self, Limits};
use super::sys::{self, ibv_device_attr_ex};
use super::{Context, check};
use crate::error::QueryError;
use crate::{DeviceDetails, PortDetails, PortNum};

impl Context {
    /// Asks the device for all its attributes.
    pub(crate) fn device_details(&self) -> Result<DeviceDetails, QueryError> {
        let plain = self.symbols.ibv_query_device.clone()?;
        let mut raw = ibv_device_attr_ex::zeroed();
        // SAFETY: the context is open as long as `self`, and `plain` is the library's own function, since `Symbols`
        // found it.
        check(unsafe { sys::query_device_ex(self.as_ptr(), &mut raw, plain) })
            .map_err(|source| self.refused("ibv_query_device_ex", source))?;
        // SAFETY: the context is open as long as `self`, so it may be read; libibverbs sets this field when it opens
        // the context, and never again.
        let comp_vectors = unsafe { (*self.as_ptr()).num_comp_vectors };
        Ok(details(&raw, comp_vectors))
    }

    /// Asks the device for all attributes of a port.
    pub(crate) fn port_details(&self, port: PortNum) -> Result<PortDetails, QueryError> {
        let raw = self.raw_port(port)?;
        Ok(PortDetails {
            attributes: port::attributes(port, &raw),
            sm_lid: raw.sm_lid,
            lmc: raw.lmc,
            cap_flags: raw.port_cap_flags,
            cap_flags2: raw.port_cap_flags2,
            max_vl_num: raw.max_vl_num,
            bad_pkey_cntr: raw.bad_pkey_cntr,
            qkey_viol_cntr: raw.qkey_viol_cntr,
            sm_sl: raw.sm_sl,
            pkey_tbl_len: raw.pkey_tbl_len,
            subnet_timeout: raw.subnet_timeout,
            init_type_reply: raw.init_type_reply,
            active_width: raw.active_width,
            active_speed: raw.active_speed,
            phys_state: raw.phys_state,
        })
    }
}

/// Converts C's structure.
fn details(all: &ibv_device_attr_ex, comp_vectors: i32) -> DeviceDetails {
    let raw = &all.orig_attr;
    let [odp_rc, odp_uc, odp_ud] = all.odp_caps.per_transport_caps;
    DeviceDetails {
        attributes: Limits::new(raw).device,
        node_guid: u64::from_be(raw.node_guid),
        sys_image_guid: u64::from_be(raw.sys_image_guid),
        comp_vectors,
        odp_general: all.odp_caps.general_caps,
        odp_rc,
        odp_uc,
        odp_ud,
        odp_xrc: all.xrc_odp_caps,
        completion_timestamp_mask: all.completion_timestamp_mask,
        hca_core_clock: all.hca_core_clock,
        raw_packet_caps: all.raw_packet_caps,
        device_cap_flags_ex: all.device_cap_flags_ex,
        tso_max: all.tso_caps.max_tso,
        tso_qp_types: all.tso_caps.supported_qpts,
        rss_qp_types: all.rss_caps.supported_qpts,
        rss_max_tables: all.rss_caps.max_rwq_indirection_tables,
        rss_max_table_size: all.rss_caps.max_rwq_indirection_table_size,
        rss_hash_functions: all.rss_caps.rx_hash_function,
        rss_hash_fields: all.rss_caps.rx_hash_fields_mask,
        max_wq_type_rq: all.max_wq_type_rq,
        pacing_min_kbps: all.packet_pacing_caps.qp_rate_limit_min,
        pacing_max_kbps: all.packet_pacing_caps.qp_rate_limit_max,
        pacing_qp_types: all.packet_pacing_caps.supported_qpts,
        tag_max_header: all.tm_caps.max_rndv_hdr_size,
        tag_max_tags: all.tm_caps.max_num_tags,
        tag_flags: all.tm_caps.flags,
        tag_max_ops: all.tm_caps.max_ops,
        tag_max_sge: all.tm_caps.max_sge,
        moderation_max_count: all.cq_mod_caps.max_cq_count,
        moderation_max_us: all.cq_mod_caps.max_cq_period,
        max_dm_size: all.max_dm_size,
        hw_ver: raw.hw_ver,
        page_size_cap: raw.page_size_cap,
        device_cap_flags: raw.device_cap_flags,
        max_sge: raw.max_sge,
        max_sge_rd: raw.max_sge_rd,
        max_cq: raw.max_cq,
        max_pd: raw.max_pd,
        max_ee_rd_atom: raw.max_ee_rd_atom,
        max_res_rd_atom: raw.max_res_rd_atom,
        max_qp_init_rd_atom: raw.max_qp_init_rd_atom,
        max_ee_init_rd_atom: raw.max_ee_init_rd_atom,
        atomic_cap: raw.atomic_cap,
        max_ee: raw.max_ee,
        max_rdd: raw.max_rdd,
        max_mw: raw.max_mw,
        max_raw_ipv6_qp: raw.max_raw_ipv6_qp,
        max_raw_ethy_qp: raw.max_raw_ethy_qp,
        max_mcast_grp: raw.max_mcast_grp,
        max_mcast_qp_attach: raw.max_mcast_qp_attach,
        max_total_mcast_qp_attach: raw.max_total_mcast_qp_attach,
        max_ah: raw.max_ah,
        max_fmr: raw.max_fmr,
        max_map_per_fmr: raw.max_map_per_fmr,
        max_srq: raw.max_srq,
        max_srq_wr: raw.max_srq_wr,
        max_srq_sge: raw.max_srq_sge,
        max_pkeys: raw.max_pkeys,
        local_ca_ack_delay: raw.local_ca_ack_delay,
    }
}
