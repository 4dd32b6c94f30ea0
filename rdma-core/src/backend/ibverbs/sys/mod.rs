//! Our own declarations of what this crate uses of libibverbs: layouts, numbers and the header's inline functions.
//!
//! Checked in, so that no header, libclang or `libibverbs-dev` is needed to build. The names are C's, so that a man
//! page or `verbs.h` can be read beside them. Every size, offset, type and number here is held against the system's
//! headers by the crate `rdma-core/abi-check`, which includes this folder by path: these files depend on `libc`
//! alone. Exported functions are not here: [`super::symbols`] resolves them at run time.
//!
//! A number that comes from a device stays a plain integer, never a Rust enum: a newer kernel may send one that is
//! not in this list.
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
