//! What the tests over the software device share.

use std::time::Duration;

use rdma_core::{Context, Deadline, Device, SoftOptions, Wire};

/// Far beyond what anything here takes, so that a slow machine is not a failure.
pub fn long() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

pub fn device(name: &str, wire: Wire) -> Context {
    Device::soft(SoftOptions { name: name.to_owned(), wire, ..SoftOptions::default() }).open().unwrap()
}
