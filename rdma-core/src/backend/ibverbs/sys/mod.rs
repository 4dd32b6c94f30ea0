//! Declarations of libibverbs: the layouts, numbers and inline functions that this crate uses.
//!
//! They are checked in, so that no header, libclang or `libibverbs-dev` is needed to build. The names are C's, so that
//! a man page or `verbs.h` can be read beside them. The crate `rdma-core/abi-check` compares every size, offset, type
//! and number with the system's headers. It includes this folder by path, so these files may depend on `libc` alone.
//! [`super::symbols`] resolves the exported functions at run time.
//!
//! A number that comes from a device stays a plain integer, never a Rust enum, because a newer kernel may send one that
//! is not in this list.
#![allow(non_camel_case_types, non_snake_case, reason = "the names are C's")]

mod constants;
mod context;
mod inline;
mod structs;
mod work;

pub use constants::*;
pub use context::*;
pub use inline::*;
pub use structs::*;
pub use work::*;
