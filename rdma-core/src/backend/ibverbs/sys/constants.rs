//! The numbers of `infiniband/verbs.h`, grouped by the C enum that holds them.
//!
//! Some are here only to be compared with the numbers of the public types, in `const _` blocks beside their users.

#![allow(
    dead_code,
    reason = "Rust 1.89, the oldest supported version, does not count uses in a `const _` block"
)]

use libc::{c_int, c_uint};

/// Declares one C enum: a type alias with the integer type that the C compiler gives it, and its numbers.
macro_rules! c_enum {
    ($($(#[$doc:meta])* $name:ident: $repr:ty { $($constant:ident = $value:expr,)* })*) => {$(
        $(#[$doc])*
        pub type $name = $repr;
        $(pub const $constant: $repr = $value;)*
    )*};
}

c_enum! {
    ibv_gid_type: c_uint {
        IBV_GID_TYPE_IB = 0,
        IBV_GID_TYPE_ROCE_V1 = 1,
        IBV_GID_TYPE_ROCE_V2 = 2,
    }

    /// Signed: C has a member of -1 for "unknown".
    ibv_node_type: c_int {}

    /// Signed: C has a member of -1 for "unknown".
    ibv_transport_type: c_int {}

    ibv_atomic_cap: c_uint {}

    ibv_mtu: c_uint {
        IBV_MTU_256 = 1,
        IBV_MTU_512 = 2,
        IBV_MTU_1024 = 3,
        IBV_MTU_2048 = 4,
        IBV_MTU_4096 = 5,
    }

    ibv_port_state: c_uint {
        IBV_PORT_DOWN = 1,
        IBV_PORT_INIT = 2,
        IBV_PORT_ARMED = 3,
        IBV_PORT_ACTIVE = 4,
    }

    ibv_event_type: c_uint {
        IBV_EVENT_CQ_ERR = 0,
        IBV_EVENT_QP_FATAL = 1,
        IBV_EVENT_QP_REQ_ERR = 2,
        IBV_EVENT_QP_ACCESS_ERR = 3,
        IBV_EVENT_COMM_EST = 4,
        IBV_EVENT_SQ_DRAINED = 5,
        IBV_EVENT_PATH_MIG = 6,
        IBV_EVENT_PATH_MIG_ERR = 7,
        IBV_EVENT_DEVICE_FATAL = 8,
        IBV_EVENT_PORT_ACTIVE = 9,
        IBV_EVENT_PORT_ERR = 10,
        IBV_EVENT_LID_CHANGE = 11,
        IBV_EVENT_PKEY_CHANGE = 12,
        IBV_EVENT_SM_CHANGE = 13,
        IBV_EVENT_QP_LAST_WQE_REACHED = 16,
        IBV_EVENT_CLIENT_REREGISTER = 17,
        IBV_EVENT_GID_CHANGE = 18,
    }

    ibv_wc_status: c_uint {
        IBV_WC_SUCCESS = 0,
        IBV_WC_LOC_LEN_ERR = 1,
        IBV_WC_LOC_QP_OP_ERR = 2,
        IBV_WC_LOC_EEC_OP_ERR = 3,
        IBV_WC_LOC_PROT_ERR = 4,
        IBV_WC_WR_FLUSH_ERR = 5,
        IBV_WC_MW_BIND_ERR = 6,
        IBV_WC_BAD_RESP_ERR = 7,
        IBV_WC_LOC_ACCESS_ERR = 8,
        IBV_WC_REM_INV_REQ_ERR = 9,
        IBV_WC_REM_ACCESS_ERR = 10,
        IBV_WC_REM_OP_ERR = 11,
        IBV_WC_RETRY_EXC_ERR = 12,
        IBV_WC_RNR_RETRY_EXC_ERR = 13,
        IBV_WC_LOC_RDD_VIOL_ERR = 14,
        IBV_WC_REM_INV_RD_REQ_ERR = 15,
        IBV_WC_REM_ABORT_ERR = 16,
        IBV_WC_INV_EECN_ERR = 17,
        IBV_WC_INV_EEC_STATE_ERR = 18,
        IBV_WC_FATAL_ERR = 19,
        IBV_WC_RESP_TIMEOUT_ERR = 20,
        IBV_WC_GENERAL_ERR = 21,
    }

    /// Undefined in a failed completion: read `status` first.
    ibv_wc_opcode: c_uint {
        IBV_WC_RECV_RDMA_WITH_IMM = (1 << 7) + 1,
    }

    ibv_wc_flags: c_uint {
        IBV_WC_WITH_IMM = 1 << 1,
    }

    ibv_access_flags: c_uint {
        IBV_ACCESS_LOCAL_WRITE = 1 << 0,
        IBV_ACCESS_REMOTE_WRITE = 1 << 1,
        IBV_ACCESS_REMOTE_READ = 1 << 2,
        IBV_ACCESS_REMOTE_ATOMIC = 1 << 3,
        IBV_ACCESS_MW_BIND = 1 << 4,
        IBV_ACCESS_RELAXED_ORDERING = 1 << 20,
    }

    ibv_qp_type: c_uint {
        IBV_QPT_RC = 2,
    }

    ibv_qp_state: c_uint {
        IBV_QPS_RESET = 0,
        IBV_QPS_INIT = 1,
        IBV_QPS_RTR = 2,
        IBV_QPS_RTS = 3,
        IBV_QPS_SQD = 4,
        IBV_QPS_SQE = 5,
        IBV_QPS_ERR = 6,
    }

    ibv_mig_state: c_uint {}

    ibv_qp_attr_mask: c_uint {
        IBV_QP_STATE = 1 << 0,
        IBV_QP_ACCESS_FLAGS = 1 << 3,
        IBV_QP_PKEY_INDEX = 1 << 4,
        IBV_QP_PORT = 1 << 5,
        IBV_QP_AV = 1 << 7,
        IBV_QP_PATH_MTU = 1 << 8,
        IBV_QP_TIMEOUT = 1 << 9,
        IBV_QP_RETRY_CNT = 1 << 10,
        IBV_QP_RNR_RETRY = 1 << 11,
        IBV_QP_RQ_PSN = 1 << 12,
        IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
        IBV_QP_MIN_RNR_TIMER = 1 << 15,
        IBV_QP_SQ_PSN = 1 << 16,
        IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
        IBV_QP_DEST_QPN = 1 << 20,
    }

    ibv_wr_opcode: c_uint {
        IBV_WR_RDMA_WRITE = 0,
        IBV_WR_RDMA_WRITE_WITH_IMM = 1,
        IBV_WR_SEND = 2,
        IBV_WR_SEND_WITH_IMM = 3,
        IBV_WR_RDMA_READ = 4,
    }

    ibv_send_flags: c_uint {
        IBV_SEND_SIGNALED = 1 << 1,
        IBV_SEND_INLINE = 1 << 3,
    }
}

/// Optional access bits: `ibv_reg_mr_iova2` drops them where the kernel does not know them, instead of failing.
pub const IBV_ACCESS_OPTIONAL_RANGE: c_uint = 0x3ff0_0000;

/// The `link_layer` of a port whose device does not name it; by convention InfiniBand.
pub const IBV_LINK_LAYER_UNSPECIFIED: u8 = 0;
pub const IBV_LINK_LAYER_INFINIBAND: u8 = 1;
pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;

/// Bytes of a name in [`super::ibv_device`], terminator included.
pub const IBV_SYSFS_NAME_MAX: usize = 64;
/// Bytes of a path in [`super::ibv_device`], terminator included.
pub const IBV_SYSFS_PATH_MAX: usize = 256;
