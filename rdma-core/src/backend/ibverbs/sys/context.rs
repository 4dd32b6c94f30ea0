//! The C device, its context and the function tables behind a context.

use libc::{c_char, c_int, c_void, pthread_mutex_t, size_t};

use super::{
    IBV_SYSFS_NAME_MAX, IBV_SYSFS_PATH_MAX, ibv_cq, ibv_device_attr_ex, ibv_node_type, ibv_port_attr, ibv_qp,
    ibv_query_device_ex_input, ibv_recv_wr, ibv_send_wr, ibv_transport_type, ibv_wc,
};

/// A function of a table that this crate does not call. It must be declared, because it fixes the offsets of the
/// others.
pub type Uncalled = Option<unsafe extern "C" fn()>;

#[repr(C)]
pub struct ibv_device {
    /// C's `_ops`: two unused pointers, kept for the layout.
    pub _ops: [*mut c_void; 2],
    pub node_type: ibv_node_type,
    pub transport_type: ibv_transport_type,
    /// The kernel's name, as in `ibv_devices`.
    pub name: [c_char; IBV_SYSFS_NAME_MAX],
    pub dev_name: [c_char; IBV_SYSFS_NAME_MAX],
    pub dev_path: [c_char; IBV_SYSFS_PATH_MAX],
    /// The folder of the device in sysfs.
    pub ibdev_path: [c_char; IBV_SYSFS_PATH_MAX],
}

/// The function table that the inline functions of the header call.
#[repr(C)]
pub struct ibv_context_ops {
    pub _compat_query_device: Uncalled,
    pub _compat_query_port: Uncalled,
    pub _compat_alloc_pd: Uncalled,
    pub _compat_dealloc_pd: Uncalled,
    pub _compat_reg_mr: Uncalled,
    pub _compat_rereg_mr: Uncalled,
    pub _compat_dereg_mr: Uncalled,
    pub alloc_mw: Uncalled,
    pub bind_mw: Uncalled,
    pub dealloc_mw: Uncalled,
    pub _compat_create_cq: Uncalled,
    pub poll_cq: Option<unsafe extern "C" fn(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(cq: *mut ibv_cq, solicited_only: c_int) -> c_int>,
    pub _compat_cq_event: Uncalled,
    pub _compat_resize_cq: Uncalled,
    pub _compat_destroy_cq: Uncalled,
    pub _compat_create_srq: Uncalled,
    pub _compat_modify_srq: Uncalled,
    pub _compat_query_srq: Uncalled,
    pub _compat_destroy_srq: Uncalled,
    pub post_srq_recv: Uncalled,
    pub _compat_create_qp: Uncalled,
    pub _compat_query_qp: Uncalled,
    pub _compat_modify_qp: Uncalled,
    pub _compat_destroy_qp: Uncalled,
    pub post_send: Option<
        unsafe extern "C" fn(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int,
    >,
    pub post_recv: Option<
        unsafe extern "C" fn(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int,
    >,
    pub _compat_create_ah: Uncalled,
    pub _compat_destroy_ah: Uncalled,
    pub _compat_attach_mcast: Uncalled,
    pub _compat_detach_mcast: Uncalled,
    pub _compat_async_event: Uncalled,
}

#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: pthread_mutex_t,
    /// [`VERBS_ABI_IS_EXTENDED`](super::VERBS_ABI_IS_EXTENDED) when this context lies inside a [`verbs_context`].
    pub abi_compat: *mut c_void,
}

/// The extended function table. It ends in the context that a caller holds, and grows at its front.
///
/// So a field is found by its distance from `context`, and exists only if `sz` covers it. Fields that later versions
/// put before `query_port` are not declared.
#[repr(C)]
pub struct verbs_context {
    pub query_port: Option<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            port_num: u8,
            port_attr: *mut ibv_port_attr,
            port_attr_len: size_t,
        ) -> c_int,
    >,
    pub advise_mr: Uncalled,
    pub alloc_null_mr: Uncalled,
    pub read_counters: Uncalled,
    pub attach_counters_point_flow: Uncalled,
    pub create_counters: Uncalled,
    pub destroy_counters: Uncalled,
    pub reg_dm_mr: Uncalled,
    pub alloc_dm: Uncalled,
    pub free_dm: Uncalled,
    pub modify_flow_action_esp: Uncalled,
    pub destroy_flow_action: Uncalled,
    pub create_flow_action_esp: Uncalled,
    pub modify_qp_rate_limit: Uncalled,
    pub alloc_parent_domain: Uncalled,
    pub dealloc_td: Uncalled,
    pub alloc_td: Uncalled,
    pub modify_cq: Uncalled,
    pub post_srq_ops: Uncalled,
    pub destroy_rwq_ind_table: Uncalled,
    pub create_rwq_ind_table: Uncalled,
    pub destroy_wq: Uncalled,
    pub modify_wq: Uncalled,
    pub create_wq: Uncalled,
    pub query_rt_values: Uncalled,
    pub create_cq_ex: Uncalled,
    /// The private part of libibverbs, a pointer.
    pub r#priv: *mut c_void,
    pub query_device_ex: Option<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            input: *const ibv_query_device_ex_input,
            attr: *mut ibv_device_attr_ex,
            attr_size: size_t,
        ) -> c_int,
    >,
    pub ibv_destroy_flow: Uncalled,
    pub ABI_placeholder2: Uncalled,
    pub ibv_create_flow: Uncalled,
    pub ABI_placeholder1: Uncalled,
    pub open_qp: Uncalled,
    pub create_qp_ex: Uncalled,
    pub get_srq_num: Uncalled,
    pub create_srq_ex: Uncalled,
    pub open_xrcd: Uncalled,
    pub close_xrcd: Uncalled,
    pub _ABI_placeholder3: u64,
    /// Bytes of the whole structure in the version of the library.
    pub sz: size_t,
    pub context: ibv_context,
}
