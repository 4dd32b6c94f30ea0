//! The frames and messages of the store.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rdma_collective::fuzzing::frame(data));
