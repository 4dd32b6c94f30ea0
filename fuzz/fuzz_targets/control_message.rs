//! Immediates and control messages of links.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rdma_collective::fuzzing::control_message(data));
