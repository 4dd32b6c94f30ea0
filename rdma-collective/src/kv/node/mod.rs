//! [`KvNode`]: a process with pools, and its peers by name, which come and go.
//!
//! `table` decides: who is a peer, which link is made, who is woken. It does no I/O. `thread` accepts peers and notices
//! when they leave; `work` is what may block (introductions, making and ending links), on threads that live as long as
//! there is any. `begin` and `meeting` are the futures, and `blob` and `message` the bytes. Transfers are those of the
//! link ends, [`Prefill`](super::Prefill) and [`Decode`](super::Decode).

mod admission;
mod begin;
mod blob;
mod closing;
mod error;
mod inner;
mod jobs;
mod link_slot;
mod meeting;
mod message;
mod name;
mod options;
mod parked;
mod table;
mod thread;
mod tickets;
mod transfers;
mod work;

use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rdma_core::Deadline;

use self::blob::{ADDRESSES_MAX, NodeBlob};
use self::inner::Inner;
use self::table::Table;
use super::link::incarnation;
use super::{Pool, PoolUse};
use crate::bootstrap::JobToken;
use crate::engine::{Engine, Nudge};
use crate::liveness::Process;

pub use admission::{Full, Load};
pub use begin::{Begin, Begun};
pub use closing::Closing;
pub use error::NodeError;
pub use meeting::{Connecting, Leaving};
pub use name::NodeName;
pub use options::NodeOptions;

#[cfg(any(fuzzing, test))]
pub(crate) use message::fuzz;

/// A node of a job's KV transfers: the pools of a process, under a name, with any number of peers. A clone is another
/// handle to the same node.
///
/// A node [exports](Self::export) one blob, which serves all peers, and [connects](Self::connect) to the blobs of
/// others. One of both connecting is enough, and both may. The links to a peer are made when a transfer first needs
/// them, and again when they have ended: a peer that nothing moves to or from costs a connection, and no link.
///
/// A peer leaves when its node is dropped or its process ends. Its transfers then fail, and its name is free for the
/// next process. Other hosts see the end of a process by its connections, which a forked child keeps open: a server
/// that forks should start its children by `exec`, which closes them.
///
/// Nothing here blocks but [`new`](Self::new) and the calls named `wait`: transfers begin by futures, which any
/// runtime polls, and are the handles that [`Prefill`](super::Prefill) and [`Decode`](super::Decode) give.
///
/// ```
/// use std::time::Duration;
/// use rdma_collective::bootstrap::JobToken;
/// use rdma_collective::engine::{Engine, EngineOptions};
/// use rdma_collective::kv::layout::{Layout, Model, Order};
/// use rdma_collective::kv::{KvNode, NodeOptions, Pool, PoolUse};
/// use rdma_core::{Deadline, Device, SoftOptions};
///
/// # type Error = Box<dyn std::error::Error + Send + Sync>;
/// let token = JobToken::random()?;
/// let layout = Layout::new(Model::DEEPSEEK_V3.shape(16, 8, Order::LayerBlockPart))?;
/// let node = |name: &str, purpose| -> Result<KvNode, Error> {
///     let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
///     let pool = Pool::allocate(&engine, &layout, purpose)?;
///     Ok(KvNode::new(&engine, &[&pool], &token, &NodeOptions::new(name, "127.0.0.1:0".parse()?))?)
/// };
/// let (prefill, decode) = (node("prefill-0", PoolUse::Source)?, node("decode-0", PoolUse::Destination)?);
/// let deadline = Deadline::after(Duration::from_secs(10));
/// // A registry carries the blob; a task would write `.await?` in place of `.wait()?`.
/// decode.connect(&prefill.export(), deadline).wait()?;
/// let grant = decode.grant("prefill-0", 1, &[5], deadline).wait()?;
/// let push = prefill.push("decode-0", 1, &[0], deadline).wait()?;
/// assert!(grant.wait()?.verdicts.all_valid());
/// push.wait()?;
/// # Ok::<(), Error>(())
/// ```
///
/// # Several devices
///
/// A node on an engine [over several devices](Engine::over) spreads its links over all of them. Each link is on one
/// rail, the first ones of a peer in both directions on different ones. A link that a rail could not carry is made
/// again on the next: for the next transfer, and at once if it could not be made. One of the two nodes makes the links,
/// and tries as many rails as it has itself. The transfers under way on a link that ends, end with an error.
///
/// Both nodes choose the rail without asking each other, so the first device of one host must reach the first of the
/// other, and so on. Give all nodes as many devices, in the same order; where the numbers differ, any device must reach
/// any other.
#[derive(Clone)]
pub struct KvNode {
    handle: Arc<Handle>,
}

/// The node ends with its last handle.
struct Handle {
    inner: Arc<Inner>,
    blob_lasts: Option<Duration>,
}

impl KvNode {
    /// Makes a node on an engine, with a pool to send from, one to receive into, or both, and listens. One pool may be
    /// [both](super::PoolUse::Both).
    ///
    /// # Errors
    ///
    /// [`NodeError::Name`], [`NodeError::NoPool`] for no pool, or two of one use; [`NodeError::Listen`],
    /// [`NodeError::NoAddress`] and [`NodeError::Thread`] for what the system refuses.
    pub fn new(
        engine: &Engine,
        pools: &[&Pool],
        token: &JobToken,
        options: &NodeOptions,
    ) -> Result<Self, NodeError> {
        engine.check_process()?;
        let name = NodeName::new(&options.name)?;
        let source = only(pools, |pool| pool.purpose().at_prefill())?;
        let destination = only(pools, |pool| pool.purpose().at_decode())?;
        if source.is_none() && destination.is_none() {
            return Err(NodeError::NoPool);
        }
        let failed = |source| NodeError::Listen { address: options.listen, source: Arc::new(source) };
        let listener = TcpListener::bind(options.listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let addresses = addresses(engine, &listener, options)?;
        let own = NodeBlob {
            job: token.fingerprint(),
            name,
            incarnation: incarnation(),
            process: Process::own(),
            expires: 0,
            soft: engine.context().is_soft(),
            addresses,
            source: source.map(|(pool, purpose)| (purpose, pool.layout().clone())),
            destination: destination.map(|(pool, _)| pool.layout().clone()),
        };
        own.encode()?;
        let nudge = Arc::new(Nudge::new().map_err(|error| failed(std::io::Error::other(error)))?);
        let table = Table::new(own.clone(), options, &nudge);
        let link = options.link.clone();
        let (source, destination) = (source.map(|(pool, _)| pool), destination.map(|(pool, _)| pool));
        let inner = Inner::new((engine, source, destination), (*token, own), link, (nudge, table));
        let handle = Handle { inner: Arc::new(inner), blob_lasts: options.blob_lasts };
        thread::start(&handle.inner, listener)?;
        Ok(Self { handle: Arc::new(handle) })
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.handle.inner
    }

    /// The name of the node.
    #[must_use]
    pub fn name(&self) -> NodeName {
        self.inner().own.name.clone()
    }

    /// The addresses at which peers reach the node.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.inner().own.addresses.clone()
    }

    /// The blob of the node, which serves all peers as long as the node lives, or [as long as it
    /// lasts](NodeOptions::blob_lasts); `docs/wire.md` has the format.
    #[must_use]
    pub fn export(&self) -> Vec<u8> {
        let mut own = self.inner().own.clone();
        if let Some(lasts) = self.handle.blob_lasts {
            let until =
                SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(lasts);
            own.expires = until.as_secs().max(1);
        }
        // A blob of this length was encoded when the node was made.
        own.encode().unwrap_or_default()
    }

    /// Connects to the node that exported `blob`; the future is ready when the two have met.
    ///
    /// The call returns at once. A node that is connected already is ready at once.
    ///
    /// # Errors
    ///
    /// The future fails with [`NodeError::Blob`] for a blob of another job or release, or one that was altered;
    /// [`NodeError::Expired`], [`NodeError::OwnName`], [`NodeError::NameTaken`] for a name that a living peer has,
    /// [`NodeError::Gone`] for the blob of a process that has ended, [`NodeError::Full`], [`NodeError::Layout`],
    /// [`NodeError::OtherDevice`] and [`NodeError::NothingToMove`] for pools that do not go together,
    /// [`NodeError::Unreachable`] and [`NodeError::Late`].
    pub fn connect(&self, blob: &[u8], deadline: Deadline) -> Connecting {
        let inner = self.inner();
        let peer = NodeBlob::decode(blob, inner.token.fingerprint()).and_then(|blob| {
            inner.engine.check_process()?;
            if let Some(since) = blob.expired(SystemTime::now()) {
                return Err(NodeError::Expired { peer: blob.name, since });
            }
            let (name, incarnation) = (blob.name.clone(), blob.incarnation);
            let ticket = inner.change(|table| table.connect(blob, deadline))?;
            Ok((name, incarnation, ticket))
        });
        Connecting::new(inner, peer, deadline)
    }

    /// The names of the peers that this node has met, and that have not left.
    #[must_use]
    pub fn peers(&self) -> Vec<NodeName> {
        let inner = self.inner();
        if inner.engine.is_forked() {
            return Vec::new();
        }
        inner.look(|table| table.met().map(|(peer, _)| peer.blob.name.clone()).collect())
    }

    /// The transfers and bytes of the node that are under way, and the requests that wait for a link or for room.
    #[must_use]
    pub fn load(&self) -> Load {
        let inner = self.inner();
        if inner.engine.is_forked() { Load::default() } else { inner.look(Table::load) }
    }

    /// The [`load`](Self::load) of one peer, in both directions; `None` when there is no such peer.
    #[must_use]
    pub fn peer_load(&self, peer: &str) -> Option<Load> {
        let inner = self.inner();
        if inner.engine.is_forked() { None } else { inner.look(|table| table.load_of(peer)) }
    }

    /// Waits for a peer to leave; the future is ready at once when there is no such peer.
    pub fn left(&self, peer: &str) -> Leaving {
        let inner = self.inner();
        if inner.engine.is_forked() { Leaving::of_nobody() } else { Leaving::new(inner, peer) }
    }

    /// Closes the node, for all its handles; the future is ready when nothing of the node is left.
    ///
    /// The node takes no peer any more from this call on. Its transfers end with an error, its peers learn at once that
    /// it has left, and calls on other handles fail with [`NodeError::Closed`]. Once the future is ready, the links
    /// have said goodbye, the pools are free of the node, and the threads have ended, but for the last one, which has
    /// let go of everything and may still wake tasks: a server may exit, or [close](Pool::close) its pools. Handles of
    /// transfers are the caller's, and keep their pool until they are dropped.
    ///
    /// A node that is dropped closes likewise, in the background.
    ///
    /// # Errors
    ///
    /// The future fails with [`NodeError::StillClosing`] at the deadline; the node then goes on closing. A link
    /// says goodbye within its [`linger`](super::LinkOptions::linger), after half a second at most if a transfer on it
    /// is under way or has an outcome that was not taken. 16 links end at a time. A link that is just being made takes
    /// 5 s at most.
    pub fn closed(self, deadline: Deadline) -> Closing {
        Closing::new(self.inner(), deadline)
    }

    /// Ends all links to a peer, and forgets it. What is under way with it ends with an error. Returns whether there
    /// was such a peer.
    pub fn forget(&self, peer: &str) -> bool {
        let inner = self.inner();
        if inner.engine.is_forked() {
            return false;
        }
        inner.change(|table| {
            let found = table.find(peer);
            if let Some((name, incarnation)) = &found {
                table.forget((name, *incarnation), None);
            }
            found.is_some()
        })
    }
}

/// The one pool that has a use at an end of a link, with that use. Fails if several have one.
fn only<'a>(
    pools: &[&'a Pool],
    at_end: impl Fn(&Pool) -> Option<PoolUse>,
) -> Result<Option<(&'a Pool, PoolUse)>, NodeError> {
    let mut fit = pools.iter().filter_map(|pool| at_end(pool).map(|purpose| (*pool, purpose)));
    match (fit.next(), fit.next()) {
        (first, None) => Ok(first),
        _ => Err(NodeError::NoPool),
    }
}

/// The addresses that peers are told.
fn addresses(
    engine: &Engine,
    listener: &TcpListener,
    options: &NodeOptions,
) -> Result<Vec<SocketAddr>, NodeError> {
    if !options.addresses.is_empty() {
        return Ok(options.addresses.iter().copied().take(ADDRESSES_MAX).collect());
    }
    let own = listener.local_addr();
    let own =
        own.map_err(|source| NodeError::Listen { address: options.listen, source: Arc::new(source) })?;
    if !own.ip().is_unspecified() {
        return Ok(vec![own]);
    }
    let gid = engine.gid().entry.gid;
    let ip = gid.ipv4_mapped().map_or(IpAddr::V6(gid.0.into()), IpAddr::V4);
    if gid.is_link_local() || ip.is_unspecified() {
        return Err(NodeError::NoAddress);
    }
    Ok(vec![SocketAddr::new(ip, own.port())])
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.inner.engine.is_forked() {
            self.inner.change(Table::close);
            self.inner.nudge.send();
        }
    }
}

impl fmt::Debug for KvNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvNode").field("name", &self.name()).finish_non_exhaustive()
    }
}
