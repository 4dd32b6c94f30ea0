//! Details of devices and ports: everything that they report, for tools that print it.

use crate::{DeviceAttributes, PortAttributes};

/// Everything that a device reports about itself, in the numbers of verbs.
///
/// A program that uses the device needs [`DeviceAttributes`] alone; the rest is for tools that print it, such as
/// `ibv_devinfo -v`. A provider without an extended query leaves everything from `odp_general` on at 0, and so does the
/// software device with each property that it does not have.
///
/// See `ibv_query_device_ex(3)`. [`Context::details`](crate::Context::details) returns it.
#[doc(alias = "ibv_device_attr_ex")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceDetails {
    /// The limits that programs need.
    pub attributes: DeviceAttributes,
    /// GUID of the device.
    pub node_guid: u64,
    /// GUID of the system that the device is a part of.
    pub sys_image_guid: u64,
    /// Revision of the hardware.
    pub hw_ver: u32,
    /// Page sizes, a bit each.
    pub page_size_cap: u64,
    /// Capabilities (`IBV_DEVICE_…`), a bit each.
    pub device_cap_flags: u32,
    /// Segments of a work request.
    pub max_sge: i32,
    /// Segments of an RDMA read.
    pub max_sge_rd: i32,
    /// Completion queues that may exist at once.
    pub max_cq: i32,
    /// Protection domains that may exist at once.
    pub max_pd: i32,
    /// Reads that may be outstanding towards an end-to-end context.
    pub max_ee_rd_atom: i32,
    /// Reads that may be outstanding towards the whole device.
    pub max_res_rd_atom: i32,
    /// Reads that one queue pair may have outstanding towards its peer.
    pub max_qp_init_rd_atom: i32,
    /// Reads that one end-to-end context may have outstanding.
    pub max_ee_init_rd_atom: i32,
    /// Atomic operations: 0 none, 1 within the device, 2 within the host.
    pub atomic_cap: u32,
    /// End-to-end contexts that may exist at once.
    pub max_ee: i32,
    /// Reliable-datagram domains that may exist at once.
    pub max_rdd: i32,
    /// Memory windows that may exist at once.
    pub max_mw: i32,
    /// Raw IPv6 queue pairs that may exist at once.
    pub max_raw_ipv6_qp: i32,
    /// Raw Ethertype queue pairs that may exist at once.
    pub max_raw_ethy_qp: i32,
    /// Multicast groups that may exist at once.
    pub max_mcast_grp: i32,
    /// Queue pairs that one multicast group may have.
    pub max_mcast_qp_attach: i32,
    /// Queue pairs that all multicast groups may have together.
    pub max_total_mcast_qp_attach: i32,
    /// Address handles that may exist at once.
    pub max_ah: i32,
    /// Fast memory regions that may exist at once.
    pub max_fmr: i32,
    /// Mappings of a fast memory region before it must be unmapped.
    pub max_map_per_fmr: i32,
    /// Shared receive queues that may exist at once.
    pub max_srq: i32,
    /// Work requests of a shared receive queue.
    pub max_srq_wr: i32,
    /// Segments of a work request of a shared receive queue.
    pub max_srq_sge: i32,
    /// Partitions of a port.
    pub max_pkeys: u16,
    /// Delay of acknowledgements, as an exponent: 4.096 us times 2 to its power.
    pub local_ca_ack_delay: u8,
    /// Interrupt vectors of completion queues.
    pub comp_vectors: i32,
    /// On-demand paging (`IBV_ODP_SUPPORT…`), a bit each.
    pub odp_general: u64,
    /// On-demand paging of reliable connections, a bit for each operation.
    pub odp_rc: u32,
    /// On-demand paging of unreliable connections.
    pub odp_uc: u32,
    /// On-demand paging of datagrams.
    pub odp_ud: u32,
    /// On-demand paging of extended reliable connections.
    pub odp_xrc: u32,
    /// Valid bits of the time of a completion; 0 without such times.
    pub completion_timestamp_mask: u64,
    /// Clock of those times, in kHz; 0 without one.
    pub hca_core_clock: u64,
    /// Offloads of raw packets, a bit each.
    pub raw_packet_caps: u32,
    /// Capabilities, with those beyond 32 bits.
    pub device_cap_flags_ex: u64,
    /// Bytes that segmentation offload takes; 0 without it.
    pub tso_max: u32,
    /// Queue pair types with segmentation offload, a bit each.
    pub tso_qp_types: u32,
    /// Queue pair types with receive-side scaling, a bit each.
    pub rss_qp_types: u32,
    /// Indirection tables of receive-side scaling.
    pub rss_max_tables: u32,
    /// Entries of an indirection table.
    pub rss_max_table_size: u32,
    /// Hash functions of receive-side scaling, a bit each.
    pub rss_hash_functions: u8,
    /// Header fields that can be hashed, a bit each.
    pub rss_hash_fields: u64,
    /// Receive work queues that may exist at once.
    pub max_wq_type_rq: u32,
    /// Lowest rate of packet pacing, in kbit/s.
    pub pacing_min_kbps: u32,
    /// Highest rate of packet pacing, in kbit/s; 0 without pacing.
    pub pacing_max_kbps: u32,
    /// Queue pair types with packet pacing, a bit each.
    pub pacing_qp_types: u32,
    /// Bytes of the header of a tag-matching rendezvous.
    pub tag_max_header: u32,
    /// Tags of a list; 0 without tag matching.
    pub tag_max_tags: u32,
    /// Properties of tag matching, a bit each.
    pub tag_flags: u32,
    /// List operations that may be outstanding.
    pub tag_max_ops: u32,
    /// Segments of a tagged buffer.
    pub tag_max_sge: u32,
    /// Completions that one event may stand for; 0 without moderation.
    pub moderation_max_count: u16,
    /// Microseconds that an event may wait for further completions.
    pub moderation_max_us: u16,
    /// Bytes of memory of the device that programs can allocate.
    pub max_dm_size: u64,
}

/// Everything that a port reports about itself, in the numbers of verbs.
///
/// See `ibv_query_port(3)`. [`Context::port_details`](crate::Context::port_details) returns it.
#[doc(alias = "ibv_port_attr")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortDetails {
    /// The state and the limits that programs need.
    pub attributes: PortAttributes,
    /// LID of the subnet manager; 0 on RoCE.
    pub sm_lid: u16,
    /// Number of low bits of the LID that are free.
    pub lmc: u8,
    /// Capabilities, a bit each.
    pub cap_flags: u32,
    /// Further capabilities, a bit each.
    pub cap_flags2: u16,
    /// Virtual lanes, as the code of verbs.
    pub max_vl_num: u8,
    /// Packets of a wrong partition that arrived.
    pub bad_pkey_cntr: u32,
    /// Packets with a wrong queue key that arrived.
    pub qkey_viol_cntr: u32,
    /// Service level of the subnet manager.
    pub sm_sl: u8,
    /// Entries of the partition table.
    pub pkey_tbl_len: u16,
    /// Propagation delay of the subnet, as an exponent.
    pub subnet_timeout: u8,
    /// Initialisation that the subnet manager has done.
    pub init_type_reply: u8,
    /// Lanes of the link, as the code of verbs.
    pub active_width: u8,
    /// Speed of a lane, as the code of verbs.
    pub active_speed: u8,
    /// Physical state of the link, as the code of verbs: 5 is up.
    pub phys_state: u8,
}
