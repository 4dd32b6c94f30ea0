//! Options of a communicator; `docs/defaults.md` argues each default.

use std::time::Duration;

use super::Algorithms;
use super::tuning::Tuning;

/// Options of a [`Communicator`](super::Communicator); all but `host_id` and `linger` must be alike on all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommunicatorOptions {
    /// Name that tells communicators in one store apart (`world`). Use each name and epoch once.
    pub name: String,
    /// Number of the communicator among those of its name (0). After a failure, create the next one with the next
    /// epoch.
    pub epoch: u32,
    /// Messages that a neighbour may be ahead (8).
    pub slots: u16,
    /// Bytes of the longest message (256 KiB). A rank holds `2 * slots * slot_bytes` besides its buffers, and 80 KiB
    /// for each rank of a group on one host. Below 32 KiB, longer operations on slices go around the ring on one host,
    /// too.
    pub slot_bytes: usize,
    /// Bytes below which a message to a neighbour is not cut further (16 KiB).
    pub chunk_bytes_min: usize,
    /// Whether every operation reduces in the order of ranks (off). Floating point then gives the same bits whatever
    /// the count, an element's position and the other options; see [`numerics`](crate::collective::numerics).
    pub reproducible: bool,
    /// Lanes to each peer on each device of the engine (1): queue pairs over which the messages to the peer are
    /// striped. A link has at most 8 in all. All of them write into one mailbox, so that more lanes take hardly more
    /// memory. A lane that fails costs time and nothing else: its messages go over the others.
    pub lanes: u8,
    /// Identity of this rank's host (the boot of its kernel). Ranks with equal identities count as one host, and
    /// [`Algorithm::Hierarchical`](super::Algorithm::Hierarchical) reduces inside hosts first.
    ///
    /// With [`Wire::Auto`](rdma_core::Wire::Auto), ranks of different identities share no memory even on one machine; a
    /// line at INFO says so. Ranks of one identity on different machines reach each other as their devices can, and
    /// results are right. But a hierarchy then takes the network between them for the inside of a host, and is slower.
    pub host_id: Option<String>,
    /// Algorithms that operations may take (all). The bits of sums depend on the choice: a tree, and a hierarchy of
    /// hosts, reduce in another order than a ring.
    pub algorithms: Algorithms,
    /// Algorithm that an operation takes among them ([built in](Tuning::default)). The bits of sums depend on this
    /// choice, too.
    pub tuning: Tuning,
    /// Time for which dropping the communicator may wait until its messages have arrived (1 s).
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
            lanes: 1,
            host_id: None,
            algorithms: Algorithms::default(),
            tuning: Tuning::default(),
            linger: Duration::from_secs(1),
        }
    }
}
