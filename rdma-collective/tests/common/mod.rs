//! What the tests over the software device share.

#![allow(dead_code, reason = "each test file uses its part")]

use std::time::Duration;

use rdma_collective::comm::CommunicatorOptions;
use rdma_core::Deadline;

/// Far beyond what anything here takes, so that a slow machine is not a failure.
pub fn long() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// What a rank on the software device with default options says: `docs/wire.md`.
pub fn introduction() -> Vec<u8> {
    let options = CommunicatorOptions::default();
    let mut told = vec![1, 0, 1];
    told.extend(7_u32.to_le_bytes());
    told.extend(options.slots.to_le_bytes());
    told.extend((options.slot_bytes as u64).to_le_bytes());
    told.extend((options.chunk_bytes_min as u64).to_le_bytes());
    told.extend([1, b'h', 1, b'd']);
    told
}
