//! Words for the numbers of verbs.

/// Returns the word for a number, or `otherwise`.
pub fn word<T: PartialEq + Copy>(
    words: &[(T, &'static str)],
    code: T,
    otherwise: &'static str,
) -> &'static str {
    words.iter().find(|(known, _)| *known == code).map_or(otherwise, |(_, word)| word)
}

/// Node types of sysfs, each with the number and the word of its transport.
pub const TRANSPORTS: &[(u32, (i32, &str))] = &[
    (1, (0, "InfiniBand")),
    (2, (0, "InfiniBand")),
    (3, (0, "InfiniBand")),
    (4, (1, "iWARP")),
    (5, (2, "usNIC")),
    (6, (3, "usNIC UDP")),
    (7, (4, "unspecified")),
];

pub const STATES: &[(u32, &str)] =
    &[(1, "PORT_DOWN"), (2, "PORT_INIT"), (3, "PORT_ARMED"), (4, "PORT_ACTIVE")];

pub const PHYSICAL_STATES: &[(u8, &str)] = &[
    (1, "SLEEP"),
    (2, "POLLING"),
    (3, "DISABLED"),
    // The C program spells it so.
    (4, "PORT_CONFIGURATION TRAINNING"),
    (5, "LINK_UP"),
    (6, "LINK_ERROR_RECOVERY"),
    (7, "PHY TEST"),
];

pub const ATOMICS: &[(u32, &str)] = &[(0, "ATOMIC_NONE"), (1, "ATOMIC_HCA"), (2, "ATOMIC_GLOB")];

pub const WIDTHS: &[(u8, &str)] = &[(1, "1"), (2, "4"), (4, "8"), (8, "12"), (16, "2")];

pub const SPEEDS: &[(u8, &str)] = &[
    (1, "2.5 Gbps"),
    (2, "5.0 Gbps"),
    (4, "10.0 Gbps"),
    (8, "10.0 Gbps"),
    (16, "14.0 Gbps"),
    (32, "25.0 Gbps"),
    (64, "50.0 Gbps"),
    (128, "100.0 Gbps"),
];

pub const LANES: &[(u8, &str)] = &[(1, "1"), (2, "2"), (3, "4"), (4, "8"), (5, "15")];

/// Bits with their words.
pub type Flags = &'static [(u32, &'static str)];

pub const DEVICE_CAPS: Flags = &[
    (0, "RESIZE_MAX_WR"),
    (1, "BAD_PKEY_CNTR"),
    (2, "BAD_QKEY_CNTR"),
    (3, "RAW_MULTI"),
    (4, "AUTO_PATH_MIG"),
    (5, "CHANGE_PHY_PORT"),
    (6, "UD_AV_PORT_ENFORCE"),
    (7, "CURR_QP_STATE_MOD"),
    (8, "SHUTDOWN_PORT"),
    (9, "INIT_TYPE"),
    (10, "PORT_ACTIVE_EVENT"),
    (11, "SYS_IMAGE_GUID"),
    (12, "RC_RNR_NAK_GEN"),
    (13, "SRQ_RESIZE"),
    (14, "N_NOTIFY_CQ"),
    (17, "MEM_WINDOW"),
    (18, "UD_IP_CSUM"),
    (20, "XRC"),
    (21, "MEM_MGT_EXTENSIONS"),
    (23, "MEM_WINDOW_TYPE_2A"),
    (24, "MEM_WINDOW_TYPE_2B"),
    (25, "RC_IP_CSUM"),
    (26, "RAW_IP_CSUM"),
    (29, "MANAGED_FLOW_STEERING"),
];

pub const DEVICE_CAPS_EX: Flags =
    &[(34, "RAW_SCATTER_FCS"), (36, "PCI_WRITE_END_PADDING"), (41, "CC_DMA_BOUNCE")];

pub const ODP: Flags = &[(0, "ODP_SUPPORT"), (1, "ODP_SUPPORT_IMPLICIT")];

pub const ODP_OPERATIONS: Flags = &[
    (0, "SUPPORT_SEND"),
    (1, "SUPPORT_RECV"),
    (2, "SUPPORT_WRITE"),
    (3, "SUPPORT_READ"),
    (4, "SUPPORT_ATOMIC"),
    (5, "SUPPORT_SRQ"),
    (6, "SUPPORT_FLUSH"),
    (7, "SUPPORT_ATOMIC_WRITE"),
];

/// Queue pair types that offloads serve.
pub const QP_TYPES: Flags = &[(8, "SUPPORT_RAW_PACKET"), (4, "SUPPORT_UD")];

/// Queue pair types that packet pacing serves.
pub const PACED_QP_TYPES: Flags = &[(8, "SUPPORT_RAW_PACKET"), (4, "SUPPORT_UD"), (2, "SUPPORT_RC")];

pub const RAW_PACKETS: Flags =
    &[(0, "C-VLAN stripping offload"), (1, "Scatter FCS offload"), (2, "IP csum offload"), (3, "Delay drop")];

pub const TAGS: Flags = &[(0, "IBV_TM_CAP_RC")];

/// Returns the words of the bits that are set, and the bits without a word.
pub fn split(flags: Flags, bits: u64) -> (Vec<&'static str>, u64) {
    let is_set = |bit: u32| bits & 1 << bit != 0;
    let set: Vec<_> = flags.iter().copied().filter(|(bit, _)| is_set(*bit)).collect();
    let known = set.iter().fold(0, |known, (bit, _)| known | 1 << bit);
    (set.into_iter().map(|(_, word)| word).collect(), bits & !known)
}
