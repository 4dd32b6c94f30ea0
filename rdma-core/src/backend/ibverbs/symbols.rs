//! The functions that libibverbs exports, each looked up by name and version when the library is opened. Functions that
//! the C header defines inline are in [`super::sys`].
#![expect(unsafe_code, reason = "a symbol of a library is an address, its type is written by hand")]

use std::ffi::c_void;
use std::mem::transmute;

use libc::{c_int, c_uint, size_t, ssize_t};

use super::sys::{
    ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_gid_entry,
    ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
};
use crate::error::LibraryUnavailable;

/// Declares [`Symbols`], with a stored `Result` for each function: a missing function fails only the calls that need
/// it, and the error names it. Names and versions are those of `libibverbs.map.in`.
macro_rules! symbols {
    ($($version:literal { $($symbol:ident: fn($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// The functions found in libibverbs; each field has the name of its symbol.
        pub(crate) struct Symbols {
            $($(pub $symbol: Result<unsafe extern "C" fn($($argument),*) $(-> $result)?, LibraryUnavailable>,)*)*
        }

        impl Symbols {
            /// Resolves every symbol with `find(name, version)`, which returns null for a missing one.
            ///
            /// # Safety
            /// `find` returns null or the address of the function of that name and version, which is loaded for ever.
            pub unsafe fn resolve(find: impl Fn(&'static str, &'static str) -> *mut c_void) -> Self {
                Self {
                    $($($symbol: {
                        let address = find(stringify!($symbol), $version);
                        if address.is_null() {
                            Err(LibraryUnavailable::TooOld { symbol: stringify!($symbol), version: $version })
                        } else {
                            // SAFETY: the address is not null, so by the contract of `resolve` it is the function of
                            // this name, and `rdma-core/abi-check` compares its C prototype with this type.
                            Ok(unsafe {
                                transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(address)
                            })
                        }
                    },)*)*
                }
            }
        }
    };
}

symbols! {
    "IBVERBS_1.0" {
        ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel;
        ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int;
    }
    "IBVERBS_1.1" {
        ibv_get_device_list: fn(*mut c_int) -> *mut *mut ibv_device;
        ibv_free_device_list: fn(*mut *mut ibv_device);
        ibv_open_device: fn(*mut ibv_device) -> *mut ibv_context;
        ibv_close_device: fn(*mut ibv_context) -> c_int;
        ibv_get_async_event: fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
        ibv_ack_async_event: fn(*mut ibv_async_event);
        ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        ibv_query_port: fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd;
        ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int;
        ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, size_t, c_int) -> *mut ibv_mr;
        ibv_dereg_mr: fn(*mut ibv_mr) -> c_int;
        ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
        ibv_destroy_cq: fn(*mut ibv_cq) -> c_int;
        ibv_get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events: fn(*mut ibv_cq, c_uint);
        ibv_create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
        ibv_query_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
        ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
        ibv_destroy_qp: fn(*mut ibv_qp) -> c_int;
    }
    "IBVERBS_1.8" {
        ibv_reg_mr_iova2: fn(*mut ibv_pd, *mut c_void, size_t, u64, c_uint) -> *mut ibv_mr;
    }
    "IBVERBS_1.11" {
        _ibv_query_gid_ex: fn(*mut ibv_context, u32, u32, *mut ibv_gid_entry, u32, size_t) -> c_int;
        _ibv_query_gid_table: fn(*mut ibv_context, *mut ibv_gid_entry, size_t, u32, size_t) -> ssize_t;
    }
}
