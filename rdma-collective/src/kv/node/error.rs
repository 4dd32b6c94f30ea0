//! Errors of nodes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{Full, NodeName};
use crate::engine::EngineError;
use crate::kv::layout::LayoutError;
use crate::kv::{KvError, LinkError};
use crate::link::{BlobError, HandshakeError};
use crate::quoted::Quoted;

/// The reason why a node could not be made, did not connect to a peer, or did not begin a transfer.
///
/// Raised by [`KvNode::new`](super::KvNode::new), [`KvNode::connect`](super::KvNode::connect) and the calls that begin
/// transfers. A transfer that has begun ends with a [`KvError`].
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// A name is empty, too long, or has other characters than a name may have.
    #[error(
        "{:?} is no name of a node; take 1 to 64 printable ASCII characters without spaces, as of a pod's name",
        Quoted(name)
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A node needs a pool to send from, or one to receive into, and takes one of each.
    #[error(
        "a node takes a source pool, a destination pool, one of each, or one pool that is both; give those"
    )]
    NoPool,
    /// The listener could not be opened.
    #[error("cannot listen at {address}: {source}; choose a free port of an address of this host")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// Peers cannot be told an address of this node.
    #[error(
        "the listener takes every address of this host, and the device's GID is none to tell peers; listen at one \
         address, or name NodeOptions::addresses"
    )]
    NoAddress,
    /// A thread of the node could not be started.
    #[error("cannot start a thread of the node: {source}; raise the limit on threads (ulimit -u, pids.max)")]
    Thread {
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// The engine cannot go on, or this process was forked from the one that made it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The bytes are not the blob of a node of this job.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The blob was good for a limited time, which is over.
    #[error("the blob of node {peer} has expired {since:.1?} ago; fetch the node's present blob")]
    Expired {
        /// The peer.
        peer: NodeName,
        /// The time since then.
        since: Duration,
    },
    /// The blob is this node's own, or that of another node of the same name.
    #[error(
        "node {peer} is this node's own name; give each node its own, and connect to the blobs of others"
    )]
    OwnName {
        /// The name.
        peer: NodeName,
    },
    /// Neither node has a pool to send from where the other one has a pool to receive into.
    #[error(
        "nodes {own} and {peer} have no source and destination between them; connect a source with a destination"
    )]
    NothingToMove {
        /// This node.
        own: NodeName,
        /// The peer.
        peer: NodeName,
    },
    /// The process that exported the blob has ended, and another one listens there.
    #[error("the process of node {peer} that exported this blob has ended; fetch the node's present blob")]
    Gone {
        /// The peer.
        peer: NodeName,
    },
    /// A living process of this job has the name.
    #[error(
        "another living process has the name {name}; give each node its own name, or end that process first"
    )]
    NameTaken {
        /// The name.
        name: NodeName,
    },
    /// A node has as many peers as it may have.
    #[error("node {node} has {max} peers, which are all it may have; raise NodeOptions::peers_max there")]
    Full {
        /// The node.
        node: NodeName,
        /// Peers at most, if the node is this one; otherwise 0.
        max: usize,
    },
    /// The nodes did not meet.
    #[error("node {peer} was not reached: {source}")]
    Unreachable {
        /// The peer.
        peer: NodeName,
        /// The reason at the last address.
        source: Arc<HandshakeError>,
    },
    /// The peer answered what a node never answers.
    #[error("node {peer} broke the protocol ({what}); run one release on both sides")]
    Violation {
        /// The peer.
        peer: NodeName,
        /// The breach.
        what: &'static str,
    },
    /// The pools of the two nodes cannot exchange blocks.
    #[error("node {peer}: {source}")]
    Layout {
        /// The peer.
        peer: NodeName,
        /// The field in which they differ.
        source: LayoutError,
    },
    /// The nodes have devices of different kinds, software and RDMA, which do not reach each other.
    #[error(
        "node {peer} has a device of another kind, software or RDMA; choose devices of one kind on both sides"
    )]
    OtherDevice {
        /// The peer.
        peer: NodeName,
    },
    /// The link to the peer could not be made.
    #[error("the link to node {peer} could not be made: {source}")]
    Link {
        /// The peer.
        peer: NodeName,
        /// The reason.
        source: Arc<LinkError>,
    },
    /// The peer, which makes the links of the two, could not make it.
    #[error("node {peer} could not make the link; see its log for the reason")]
    LinkUnmade {
        /// The peer.
        peer: NodeName,
    },
    /// The node has no peer of that name.
    #[error("node {:?} is no peer of this one; connect to its blob first", Quoted(peer))]
    Unknown {
        /// The name.
        peer: String,
    },
    /// The peer has left, or its process has ended.
    #[error("node {peer} has left, or its process has ended; connect to its next blob")]
    Left {
        /// The peer.
        peer: NodeName,
    },
    /// The nodes were not connected, or had no link, by the deadline.
    #[error(
        "node {peer} was not connected within {waited:.1?}; see whether its process is stopped or cut off, or wait longer"
    )]
    Late {
        /// The peer.
        peer: NodeName,
        /// The time waited.
        waited: Duration,
    },
    /// There was no room for the transfer by its deadline; or as many requests waited already as may.
    #[error("no room for a transfer with node {peer} within {waited:.1?}: {full}")]
    Busy {
        /// The peer.
        peer: NodeName,
        /// The bound that was full.
        full: Full,
        /// The time waited.
        waited: Duration,
    },
    /// The node was closed or dropped meanwhile.
    #[error("the node was closed or dropped; keep it as long as its transfers begin")]
    Closed,
    /// The node was closed, and has not ended by the deadline.
    #[error(
        "node {node} has not ended within {waited:.1?}, because a link is still being made or ended; it goes on in the \
         background, so wait longer or leave it"
    )]
    StillClosing {
        /// The node.
        node: NodeName,
        /// The time waited.
        waited: Duration,
    },
    /// The transfer could not begin.
    #[error("node {peer}: {source}")]
    Transfer {
        /// The peer.
        peer: NodeName,
        /// The reason.
        source: KvError,
    },
}
