//! Tables of ways, which people write.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rdma_collective::fuzzing::tuning(data));
