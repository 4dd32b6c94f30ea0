//! The blob by which one end of a link describes itself to the other.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rdma_collective::fuzzing::blob(data));
