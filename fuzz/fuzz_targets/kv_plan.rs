//! A pool shape and block ids from a peer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rdma_collective::fuzzing::kv_plan(data));
