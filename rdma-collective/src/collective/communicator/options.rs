//! How a communicator is made; each default is argued in `docs/defaults.md`.

use std::time::Duration;

use super::Algorithms;
use super::tuning::Tuning;

/// Options of a [`Communicator`](super::Communicator); all but `host_id` and `linger` are alike on all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommunicatorOptions {
    /// Tells communicators that meet in one store apart (`world`); each name and epoch is used once.
    pub name: String,
    /// Counts the communicators of one name (0): the next one after a failure has the next.
    pub epoch: u32,
    /// Messages that a neighbour may be ahead (8).
    pub slots: u16,
    /// Bytes of the longest message (256 KiB). `2 * slots * slot_bytes` is what a rank holds besides its buffers, and 80 KiB for
    /// each rank of a group on one host. Below 32 KiB, longer operations on slices go around the ring there, too.
    pub slot_bytes: usize,
    /// Bytes below which what goes to a neighbour is not cut further (16 KiB).
    pub chunk_bytes_min: usize,
    /// Every operation reduces in the order of ranks (off), so that floating point gives the same bits whatever the count,
    /// the place of an element and the other options; see [`numerics`](crate::collective::numerics).
    pub reproducible: bool,
    /// What tells this rank's host from others (the boot of its kernel): ranks of one host are near each other, and by
    /// [`Algorithm::Hierarchical`](super::Algorithm::Hierarchical) an all-reduce is done inside hosts first. By
    /// [`Wire::Auto`](rdma_core::Wire::Auto) those of different ones that are named so share no memory, be they on one machine, and
    /// that is said at INFO. Those of one that are on different machines reach each other as their devices can, and operations are right; but
    /// a hierarchy takes the network between them for the inside of a host, and is slower by that.
    pub host_id: Option<String>,
    /// Which ways operations may take (all). Bits depend on it: a tree, and a hierarchy of hosts, reduce in another order than a ring.
    pub algorithms: Algorithms,
    /// Which of them an operation takes ([built in](Tuning::default)). Bits depend on it likewise.
    pub tuning: Tuning,
    /// How long dropping it may wait for what it has sent to arrive (1 s).
    pub linger: Duration,
}

impl Default for CommunicatorOptions {
    fn default() -> Self {
        Self {
            name: "world".to_owned(),
            epoch: 0,
            slots: 8,
            slot_bytes: 256 * 1024,
            chunk_bytes_min: 16 * 1024,
            reproducible: false,
            host_id: None,
            algorithms: Algorithms::default(),
            tuning: Tuning::default(),
            linger: Duration::from_secs(1),
        }
    }
}
