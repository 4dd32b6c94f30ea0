//! A peer may write a region at any moment, so a region cannot be sliced.

fn slice(region: &rdma_core::Region) -> &[u8] {
    &region[..]
}

fn main() {}
