//! Asynchronous events of libibverbs with any number in any field.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rdma_core::fuzzing::events(data));
