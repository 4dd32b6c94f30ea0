//! Tests of the backend against a device, through the seam: behaviour that no other layer can show, such as a partial
//! post.
//!
//! They are ignored by default, because they need a device. Each fails where there is none:
//! `cargo xtask soft-roce -- TEST_EXECUTABLE ibverbs::tests --ignored --test-threads=1`.
#![expect(unsafe_code, reason = "posts memory of its own")]

mod connect;
mod events;
mod operations;
mod pair;
mod queries;
