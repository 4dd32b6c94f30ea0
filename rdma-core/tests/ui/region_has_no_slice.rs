//! A peer may write a region at any moment: there is no slice of it.

fn slice(region: &rdma_core::Region) -> &[u8] {
    &region[..]
}

fn main() {}
