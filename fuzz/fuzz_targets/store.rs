//! The store's decisions, against a model.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rdma_collective::fuzzing::store(data));
