//! The packets by which processes meet for the software device's mapped wire.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rdma_core::fuzzing::rendezvous(data));
