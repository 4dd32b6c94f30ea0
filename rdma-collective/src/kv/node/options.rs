//! Options of a node.

use std::net::SocketAddr;
use std::time::Duration;

use crate::kv::LinkOptions;
use crate::link::imm::TRANSFERS_MAX;

/// Options of a [`KvNode`](super::KvNode); `docs/defaults.md` has the reason of each default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOptions {
    /// The name by which peers know the node. No other living node of the job may have it.
    pub name: String,
    /// The address at which the node listens; port 0 takes any free one.
    pub listen: SocketAddr,
    /// The addresses that peers are told, 8 at most (none: the listener's own, or the address of the device's GID where
    /// the listener takes every address of the host). A pod behind a service names what others reach.
    pub addresses: Vec<SocketAddr>,
    /// The time for which an exported blob is good (none: for ever). A registry that forgets to remove entries needs
    /// one.
    pub blob_lasts: Option<Duration>,
    /// Peers at most (512).
    pub peers_max: usize,
    /// Transfers of one peer in one direction that are under way at most (256, which is also the most that a link
    /// has). A transfer counts until its outcome is taken, or its handle dropped. More requests wait for room, by their
    /// deadlines.
    pub peer_transfers_max: usize,
    /// Bytes of one peer in one direction that are under way at most (no bound): those of the blocks in this node's
    /// pool, which count in full where a request names some of their tokens. One transfer may be longer than the bound
    /// while it is the only one.
    pub peer_bytes_max: u64,
    /// Transfers of the node that are under way at most (16,384). Give the node several times the bound of a peer,
    /// because a peer that is stopped holds its own bound full.
    pub transfers_max: usize,
    /// Bytes of the node that are under way at most (no bound).
    pub bytes_max: u64,
    /// Requests of the node that wait at most, for a link or for room (16,384). The next one fails at once, whichever
    /// peer it is for.
    pub waiting_max: usize,
    /// Requests of one peer in one direction that wait at most (4,096); the next one fails at once. Give the node
    /// several times this bound, because requests for a peer that is stopped wait until their deadlines, and count
    /// meanwhile.
    pub peer_waiting_max: usize,
    /// The options of each link. The queues are shorter than those of a link made by hand (32 writes outstanding, 64
    /// messages), because a node has many: a link takes some 100 entries of the engine's
    /// [`max_cqe`](crate::engine::EngineOptions::max_cqe), and 64 KiB. Their [`rail`](LinkOptions::rail) is ignored,
    /// because [the node chooses it](super::KvNode#several-devices).
    pub link: LinkOptions,
}

impl NodeOptions {
    /// The defaults, for a node of this name that listens there.
    #[must_use]
    pub fn new(name: &str, listen: SocketAddr) -> Self {
        Self {
            name: name.to_owned(),
            listen,
            addresses: Vec::new(),
            blob_lasts: None,
            peers_max: 512,
            peer_transfers_max: TRANSFERS_MAX,
            peer_bytes_max: u64::MAX,
            transfers_max: 16_384,
            bytes_max: u64::MAX,
            waiting_max: 16_384,
            peer_waiting_max: 4_096,
            link: LinkOptions { max_send_wr: 32, credits: 64, ..LinkOptions::default() },
        }
    }
}
