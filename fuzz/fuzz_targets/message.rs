//! The frames of the software device's TCP wire.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rdma_core::fuzzing::message(data));
