//! The functions that `infiniband/verbs.h` defines inline, so that no library exports them: they go through the
//! function tables of a context.
//!
//! # Safety
//!
//! Each function takes pointers that libibverbs returned and that are not released yet. Each asks for what its C
//! original asks for; its `# Safety` section repeats that.
#![expect(
    unsafe_code,
    reason = "function tables and the structure around a context are read through raw pointers"
)]

use std::mem::offset_of;

use libc::{c_int, c_void};

use super::{
    ibv_context, ibv_cq, ibv_device_attr, ibv_device_attr_ex, ibv_port_attr, ibv_qp,
    ibv_query_device_ex_input, ibv_recv_wr, ibv_send_wr, ibv_wc, verbs_context,
};

/// The `abi_compat` of a context that lies inside a [`verbs_context`].
pub const VERBS_ABI_IS_EXTENDED: usize = usize::MAX;

/// The type of the exported `ibv_query_port`, which fills a structure that ends before `port_cap_flags2`.
pub type CompatQueryPort = unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;

/// Reads a field of the [`verbs_context`] around `context`; `None` where the library is too old to have it.
macro_rules! extended_field {
    ($context:expr, $field:ident) => {{
        let context: *mut ibv_context = $context;
        let back = |offset| offset_of!(verbs_context, context) - offset;
        if (*context).abi_compat != VERBS_ABI_IS_EXTENDED as *mut c_void {
            None
        } else {
            let size = context.byte_sub(back(offset_of!(verbs_context, sz))).cast::<usize>().read();
            let needed = size_of::<verbs_context>() - offset_of!(verbs_context, $field);
            let field = back(offset_of!(verbs_context, $field));
            if size < needed { None } else { *context.byte_sub(field).cast() }
        }
    }};
}

/// `int ibv_query_port(context, port_num, port_attr)`: prefers the extended table, which fills all of the structure.
/// Returns 0 or an errno.
///
/// # Safety
/// `context` is open, and `compat` is the library's `ibv_query_port`.
pub unsafe fn query_port(
    context: *mut ibv_context,
    port_num: u8,
    attributes: &mut ibv_port_attr,
    compat: CompatQueryPort,
) -> c_int {
    type QueryPort = unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int;
    *attributes = ibv_port_attr::zeroed();
    // SAFETY: the context is open, so its `abi_compat` is set. When that says "extended", the context is the last
    // field of a `verbs_context`, whose `sz` lies directly before it; a field is read only when `sz` covers it.
    let extended: Option<QueryPort> = unsafe { extended_field!(context, query_port) };
    match extended {
        // SAFETY: the function gets the context that its table belongs to, and the true length of our structure, so it
        // writes only within that.
        Some(query) => unsafe { query(context, port_num, attributes, size_of::<ibv_port_attr>()) },
        // SAFETY: our structure is longer than the one that the exported function fills, so it writes only within
        // ours; the rest stays zero.
        None => unsafe { compat(context, port_num, attributes) },
    }
}

/// `int ibv_query_device_ex(context, NULL, attr)`: where the provider has no such query, `plain` fills the part that
/// older libraries have, and the rest stays zero. Returns 0 or an errno.
///
/// # Safety
/// `context` is open, and `plain` is the library's `ibv_query_device`.
pub unsafe fn query_device_ex(
    context: *mut ibv_context,
    attributes: &mut ibv_device_attr_ex,
    plain: unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int,
) -> c_int {
    type QueryDevice = unsafe extern "C" fn(
        *mut ibv_context,
        *const ibv_query_device_ex_input,
        *mut ibv_device_attr_ex,
        usize,
    ) -> c_int;
    *attributes = ibv_device_attr_ex::zeroed();
    // SAFETY: the context is open, so its `abi_compat` is set. When that says "extended", the context is the last
    // field of a `verbs_context`, whose `sz` lies directly before it; a field is read only when `sz` covers it.
    let extended: Option<QueryDevice> = unsafe { extended_field!(context, query_device_ex) };
    if let Some(query) = extended {
        // SAFETY: the function gets the context that its table belongs to, no input, which it allows, and the true
        // length of our structure, so it writes only within that.
        let result = unsafe { query(context, std::ptr::null(), attributes, size_of::<ibv_device_attr_ex>()) };
        if result != libc::EOPNOTSUPP && result != libc::ENOSYS {
            return result;
        }
        *attributes = ibv_device_attr_ex::zeroed();
    }
    // SAFETY: the context is open, and the function fills the structure that it gets and no more, so it may be called.
    unsafe { plain(context, &mut attributes.orig_attr) }
}

/// `int ibv_post_send(qp, wr, bad_wr)`. Returns 0 or an errno.
///
/// # Safety
/// `qp` is alive and no other thread posts to it; `wr` heads a chain ended by a null `next` whose `sg_list`s hold
/// `num_sge` entries; the memory that they name stays registered and in place until the completion.
pub unsafe fn ibv_post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: &mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the caller promises a live queue pair, which points to its open context, so both may be read.
    match unsafe { (*(*qp).context).ops.post_send } {
        // SAFETY: the caller promises a live queue pair and a valid chain, and the function is of the context of that
        // object, so it may be called.
        Some(post_send) => unsafe { post_send(qp, wr, bad_wr) },
        None => {
            *bad_wr = wr;
            libc::EOPNOTSUPP
        }
    }
}

/// `int ibv_post_recv(qp, wr, bad_wr)`. Returns 0 or an errno.
///
/// # Safety
/// `qp` is alive and no other thread posts to it; `wr` heads a chain ended by a null `next` whose `sg_list`s hold
/// `num_sge` entries; the memory that they name stays registered and in place until the completion.
pub unsafe fn ibv_post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: &mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the caller promises a live queue pair, which points to its open context, so both may be read.
    match unsafe { (*(*qp).context).ops.post_recv } {
        // SAFETY: the caller promises a live queue pair and a valid chain, and the function is of the context of that
        // object, so it may be called.
        Some(post_recv) => unsafe { post_recv(qp, wr, bad_wr) },
        None => {
            *bad_wr = wr;
            libc::EOPNOTSUPP
        }
    }
}

/// `int ibv_poll_cq(cq, num_entries, wc)`. Returns the number of entries written, or a negative number.
///
/// # Safety
/// `cq` is alive.
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, completions: &mut [ibv_wc]) -> c_int {
    let entries = c_int::try_from(completions.len()).unwrap_or(c_int::MAX);
    // SAFETY: the caller promises a live completion queue, which points to its open context, so both may be read.
    match unsafe { (*(*cq).context).ops.poll_cq } {
        // SAFETY: the caller promises a live completion queue; at most `entries` entries are written, so only within
        // the slice.
        Some(poll_cq) => unsafe { poll_cq(cq, entries, completions.as_mut_ptr()) },
        None => -libc::EOPNOTSUPP,
    }
}

/// `int ibv_req_notify_cq(cq, solicited_only)`. Returns 0 or an errno.
///
/// # Safety
/// `cq` is alive.
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: bool) -> c_int {
    // SAFETY: the caller promises a live completion queue, which points to its open context, so both may be read.
    match unsafe { (*(*cq).context).ops.req_notify_cq } {
        // SAFETY: the caller promises a live completion queue, and the function is of the context of that object, so
        // it may be called.
        Some(req_notify_cq) => unsafe { req_notify_cq(cq, c_int::from(solicited_only)) },
        None => libc::EOPNOTSUPP,
    }
}
