//! What the tests over the software device share.

use std::time::Duration;

use rdma_core::Deadline;

/// Far beyond what anything here takes, so that a slow machine is not a failure.
pub fn long() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}
