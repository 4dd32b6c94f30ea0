//! A pool shape, block ids and the parts that are wanted, from a peer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rdma_collective::fuzzing::kv_plan(data));
